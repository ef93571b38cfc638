//! A pseudo-terminal for a stream of the binary, and the screen that its bytes make.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::pty::{OpenptFlags, grantpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use super::Collector;

/// The side of a terminal that a person looks at.
pub(crate) struct Terminal {
    screen: Collector,
}

impl Terminal {
    /// Opens a terminal of 24 lines of 100 columns that passes bytes on unchanged; the second value is the side of
    /// the program.
    pub(crate) fn open() -> (Self, OwnedFd) {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let slave = rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap();
        let mut modes = tcgetattr(&slave).unwrap();
        modes.output_modes -= OutputModes::OPOST;
        tcsetattr(&slave, OptionalActions::Now, &modes).unwrap();
        tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        (Self { screen: Collector::start(Some(File::from(master))) }, slave)
    }

    /// Waits until the program has written a text.
    pub(crate) fn wait(&self, text: &str) {
        self.screen.wait(text);
    }

    /// Everything written so far.
    pub(crate) fn so_far(&self) -> String {
        String::from_utf8(self.screen.so_far()).unwrap()
    }

    /// Everything written. The program must have ended.
    pub(crate) fn finish(mut self) -> String {
        String::from_utf8(self.screen.finish()).unwrap()
    }
}

/// What a person sees after these bytes, without white space at the end of lines. A line feed also returns.
pub(crate) fn rendered(bytes: &str) -> String {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0_usize, 0_usize);
    let mut rest = bytes.chars();
    while let Some(character) = rest.next() {
        match character {
            '\n' => {
                row += 1;
                column = 0;
                if lines.len() == row {
                    lines.push(Vec::new());
                }
            }
            '\r' => column = 0,
            '\u{1b}' => {
                assert_eq!(rest.next(), Some('['), "only control sequences: {bytes:?}");
                let mut number = String::new();
                let end = rest.by_ref().find(|c| {
                    let ends = c.is_ascii_alphabetic();
                    if !ends {
                        number.push(*c);
                    }
                    ends
                });
                match end {
                    Some('K') if number == "2" => lines[row].clear(),
                    Some('K') => lines[row].truncate(column),
                    Some('A') => row -= number.parse::<usize>().unwrap_or(1),
                    Some('B') => row += number.parse::<usize>().unwrap_or(1),
                    Some('m' | 'h' | 'l') => {}
                    other => panic!("an unexpected sequence {number}{other:?} in {bytes:?}"),
                }
            }
            _ => {
                let line = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = character;
                column += 1;
            }
        }
    }
    let texts: Vec<String> = lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect();
    texts.join("\n")
}
