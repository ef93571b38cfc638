//! The command: arguments in, exit status out.

use std::process::ExitCode;

fn main() -> ExitCode {
    let exit = pirn::app::run(std::env::args_os().collect());
    pirn::app::raise(exit);
    ExitCode::from(exit.code)
}
