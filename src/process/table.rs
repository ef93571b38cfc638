//! The processes of this machine, as `/proc` shows them.
//!
//! Keeps true: a process is its number and its start time, so a number that was used again is another process; one whose
//! environment cannot be read is nobody's; nothing here waits for anything but the kernel, and reading is for threads
//! that may block.
//!
//! Must not know: which processes are wanted.

use std::io;

use rustix::process::{Pid, Signal};

/// The most that is read of a process's environment: what Linux allows arguments and environment together is less.
#[cfg(target_os = "linux")]
const ENVIRONMENT_BYTES_MAX: u64 = 8 << 20;
/// The most that is read of a status line, which has about 300 bytes.
#[cfg(target_os = "linux")]
const STATUS_BYTES_MAX: u64 = 4 << 10;
/// The most that is read of a list of children, each a number of up to eight characters.
#[cfg(target_os = "linux")]
const CHILDREN_BYTES_MAX: u64 = 32 << 20;
/// The most processes a walk looks at; Linux has no larger numbers.
#[cfg(target_os = "linux")]
const PROCESSES_MAX: usize = 1 << 22;

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) id: u32,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    /// Clock ticks since boot.
    pub(super) start_time: u64,
    /// Whether it has ended and waits for its parent to take notice.
    pub(super) is_zombie: bool,
}

/// All processes this process may see, at about one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    processes: Vec<Process>,
}

impl Table {
    /// Walks `/proc`. Blocks.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    #[cfg(target_os = "linux")]
    pub(super) fn read() -> io::Result<Self> {
        let numbers = std::fs::read_dir("/proc")?.take(PROCESSES_MAX).filter_map(|entry| {
            let name = entry.ok()?.file_name();
            name.to_str()?.parse::<u32>().ok()
        });
        Ok(Self { processes: numbers.filter_map(Process::read).collect() })
    }

    /// Other systems show no processes in files.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn read() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Those that still run.
    pub(super) fn running(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| !process.is_zombie)
    }

    /// Those that a process has for children, ended ones included.
    pub(super) fn children(&self, parent: u32) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(move |process| process.parent == parent)
    }

    /// Those of a group that still run.
    pub(super) fn members(&self, group: u32) -> impl Iterator<Item = &Process> {
        self.running().filter(move |process| process.group == group)
    }
}

impl Process {
    /// A process by its number; `None` if there is none that we may see.
    #[cfg(target_os = "linux")]
    pub(super) fn read(id: u32) -> Option<Self> {
        let status = read_bounded(&format!("/proc/{id}/stat"), STATUS_BYTES_MAX)?;
        parse(id, &String::from_utf8_lossy(&status))
    }

    /// Other systems show no processes in files.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn read(_id: u32) -> Option<Self> {
        None
    }

    /// Its environment as it was when its program started; `None` when it may not be read.
    pub(super) fn environment(&self) -> Option<Environment> {
        environment(self.id)
    }

    /// Whether this is still the process of that number, and runs.
    pub(super) fn still_runs(&self) -> bool {
        Self::read(self.id).is_some_and(|now| now.start_time == self.start_time && !now.is_zombie)
    }

    /// Sends it a signal, and never to another process that got its number since. Fails silently: one that has ended
    /// meanwhile, or runs as another user, is left.
    pub(super) fn signal(&self, signal: Signal) {
        let Some(id) = pid(self.id) else {
            return;
        };
        match self.send(id, signal) {
            Ok(()) | Err(_) => {}
        }
    }

    /// A handle names this one process even after it is gone, so what is checked is what is signalled.
    #[cfg(target_os = "linux")]
    fn send(&self, id: Pid, signal: Signal) -> rustix::io::Result<()> {
        use rustix::io::Errno;
        use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};

        match pidfd_open(id, PidfdFlags::empty()) {
            Ok(handle) if self.still_runs() => pidfd_send_signal(handle, signal),
            // An old kernel, a filter of system calls, or no descriptor left. Then the check and the signal are two
            // moments, a few microseconds apart.
            Err(error) if error != Errno::SRCH && self.still_runs() => kill_process(id, signal),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Without a way to check, nothing is signalled by number.
    #[cfg(not(target_os = "linux"))]
    fn send(&self, id: Pid, signal: Signal) -> rustix::io::Result<()> {
        if self.still_runs() { rustix::process::kill_process(id, signal) } else { Ok(()) }
    }
}

/// The children of a process, without a walk; `None` where the kernel does not list them.
#[cfg(target_os = "linux")]
pub(super) fn children(parent: u32) -> Option<Vec<Process>> {
    let mut found = Vec::new();
    // Each thread lists those it started.
    for task in std::fs::read_dir(format!("/proc/{parent}/task")).ok()?.take(PROCESSES_MAX) {
        let path = task.ok()?.path().join("children");
        let listed = read_bounded(path.to_str()?, CHILDREN_BYTES_MAX)?;
        let listed = String::from_utf8_lossy(&listed);
        found.extend(listed.split_ascii_whitespace().filter_map(|id| Process::read(id.parse().ok()?)));
    }
    Some(found)
}

/// Other systems do not list them.
#[cfg(not(target_os = "linux"))]
pub(super) fn children(_parent: u32) -> Option<Vec<Process>> {
    None
}

#[cfg(target_os = "linux")]
fn environment(id: u32) -> Option<Environment> {
    read_bounded(&format!("/proc/{id}/environ"), ENVIRONMENT_BYTES_MAX).map(Environment)
}

/// Other systems do not show it.
#[cfg(not(target_os = "linux"))]
fn environment(_id: u32) -> Option<Environment> {
    None
}

/// The variables of a process.
pub(super) struct Environment(Vec<u8>);

impl Environment {
    /// Whether there is such a variable.
    pub(super) fn knows(&self, name: &str) -> bool {
        let is_it = |entry: &[u8]| entry.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
        self.0.split(|byte| *byte == 0).any(is_it)
    }

    /// Whether a variable has exactly this value.
    pub(super) fn has(&self, name: &str, value: &str) -> bool {
        let is_it = |entry: &[u8]| {
            entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) == Some(value.as_bytes())
        };
        self.0.split(|byte| *byte == 0).any(is_it)
    }
}

/// A number as the system calls take it; `None` for 0, which is no process, and for what is no number of one.
pub(super) fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

/// Signals a group. Fails silently: when nobody is left, and for members of another user, who are out of reach (X5).
pub(super) fn signal_group(id: Pid, signal: Signal) {
    match rustix::process::kill_process_group(id, signal) {
        Ok(()) | Err(_) => {}
    }
}

/// Which boot of the machine this is; empty where nobody tells.
pub(super) fn boot_id() -> String {
    #[cfg(target_os = "linux")]
    if let Some(id) = read_bounded("/proc/sys/kernel/random/boot_id", STATUS_BYTES_MAX) {
        return String::from_utf8_lossy(&id).trim().to_owned();
    }
    String::new()
}

#[cfg(target_os = "linux")]
fn read_bounded(path: &str, max: u64) -> Option<Vec<u8>> {
    use std::io::Read as _;

    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// A status line: `ID (NAME) STATE PARENT GROUP … START …`. The name may hold anything, parentheses and spaces too.
#[cfg(any(target_os = "linux", test))]
fn parse(id: u32, status: &str) -> Option<Process> {
    /// Where the start time stands, counted from the state.
    const START_TIME: usize = 19;

    let (_, behind_name) = status.rsplit_once(')')?;
    let fields: Vec<&str> = behind_name.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(Process {
        id,
        is_zombie: matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: number(1)?,
        // Threads of the kernel have no group; -1 stands in other namespaces.
        group: number(2).unwrap_or(0),
        session: number(3).unwrap_or(0),
        start_time: fields.get(START_TIME)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Environment, Process, parse};

    #[test]
    fn a_status_line_is_read_whatever_the_name_holds() {
        let rest = "20 0 1 0 4711 2 3 18446744073709551615";
        let line =
            |name: &str, state: &str| format!("12 ({name}) {state} 7 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 {rest}\n");
        let want = Process { id: 12, parent: 7, group: 12, session: 12, start_time: 4711, is_zombie: false };
        for name in ["sleep", "a b", "x) R 1 1 1", "", ")("] {
            assert_eq!(parse(12, &line(name, "S")), Some(want), "{name:?}");
        }
        assert!(parse(12, &line("sleep", "Z")).unwrap().is_zombie);
        for broken in ["", "12", "12 (sleep", "12 (sleep) S", "12 (sleep) S 7 12 12 0 -1 1 2 3"] {
            assert_eq!(parse(12, broken), None, "{broken:?}");
        }
    }

    #[test]
    fn a_variable_counts_only_whole() {
        let environment = Environment(b"A=1\0PIRN_RUN_TOKEN=abc\0XPIRN_CALL_ID=c\0B=PIRN_CALL_ID=c\0".to_vec());
        assert!(environment.has("PIRN_RUN_TOKEN", "abc"));
        for (name, value) in [("PIRN_RUN_TOKEN", "ab"), ("PIRN_RUN_TOKEN", "abcd"), ("PIRN_CALL_ID", "c"), ("A", "")] {
            assert!(!environment.has(name, value), "{name}={value}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_found_and_is_the_same_later() {
        let table = super::Table::read().unwrap();
        let own = table.running().find(|process| process.id == std::process::id()).unwrap();
        assert!(own.still_runs());
        assert_eq!(own.parent, rustix::process::getppid().unwrap().as_raw_nonzero().get().cast_unsigned());
        assert!(!Process { start_time: own.start_time + 1, ..*own }.still_runs());
        assert!(!super::boot_id().is_empty());
    }
}
