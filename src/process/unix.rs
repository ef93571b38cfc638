//! The system calls no safe wrapper in the tree offers. Each block says why it is sound.
#![expect(unsafe_code, reason = "the one audited module with unsafe code")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// Whether a signal was ignored when asked, as under `nohup`.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only queries; `action` is valid for one write, and all-zero is a valid `sigaction`,
    // so reading it is sound even if the call failed.
    let (queried, action) = unsafe {
        let queried = libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        (queried, action.assume_init())
    };
    queried == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Overwrites the values of these variables in the environment block this process was started with, which its children
/// could read through `/proc` (V4). What was copied before stays.
pub fn wipe_environment(names: &[String]) {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: `environ` is null or a list of C strings that a null ends; nothing here changes the list, and this program
    // changes no variable, so the strings are those of the start.
    let mut entry = unsafe { environ };
    // SAFETY: as above; the walk ends at the null, and each string at its zero byte.
    unsafe {
        while !entry.is_null() && !(*entry).is_null() {
            let text = std::ffi::CStr::from_ptr(*entry);
            let bytes = text.to_bytes();
            let value = bytes.iter().position(|byte| *byte == b'=').filter(|equals| {
                let name = bytes.get(..*equals).unwrap_or_default();
                names.iter().any(|wiped| wiped.as_bytes() == name)
            });
            if let Some(equals) = value {
                let end = bytes.len();
                let start = (*entry).cast_mut();
                for at in equals + 1..end {
                    // The block is memory of this process, made for it when it started, and writable. Volatile: nobody
                    // reads it here, and it must not be left out.
                    start.add(at).write_volatile(libc::c_char::try_from(b'*').unwrap_or_default());
                }
            }
            entry = entry.add(1);
        }
    }
}

/// The first signal that came since [`note`] was called for it; 0 = none.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Has the signal's handler itself note that it came, so that [`first_noted`] knows it before any task has run. The
/// disposition becomes that of a handler, which other listeners of the process share.
///
/// # Errors
/// The system refuses a handler for this signal.
pub fn note(signal: i32) -> io::Result<()> {
    let action = move || {
        match FIRST.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst) {
            // The first one stays.
            Ok(_) | Err(_) => {}
        }
    };
    // SAFETY: the action runs inside a signal handler. It only compares and stores one lock-free atomic: it
    // allocates nothing, takes no lock and cannot panic.
    unsafe { signal_hook_registry::register(signal, action) }.map(drop)
}

/// The first signal of those noted, as soon as its handler has begun.
pub fn first_noted() -> Option<i32> {
    Some(FIRST.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}

/// Whether a write to a descriptor would go on at once, waiting up to `wait` for it. A descriptor that fails counts as
/// ready, since the write tells what is wrong. A ready pipe takes at least one page.
pub fn is_writable(descriptor: BorrowedFd<'_>, wait: Duration) -> bool {
    let mut asked = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the pointer is to one valid `pollfd`, which is what the count says; the descriptor is borrowed, so it
    // stays open during the call.
    unsafe { libc::poll(&raw mut asked, 1, wait_ms) != 0 }
}

/// Makes a write beyond the limit on a file's size (`ulimit -f`) an error of that write, `EFBIG`, instead of the death of
/// the process. For the binary only: an embedding program decides for itself. Children get the default action back.
pub fn survive_file_size_limit() {
    // SAFETY: `SIG_IGN` is a valid disposition for this signal; the call touches no memory of ours. It cannot fail for a
    // signal that may be ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Signals that this process ignores for itself and that programs expect to die of.
const RESTORED: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// The first descriptor behind the standard streams.
#[cfg(target_os = "linux")]
const FIRST_OTHER: libc::c_uint = 3;

/// Has the child lead a session and a group of its own, without a terminal, keep nothing open beside its standard
/// streams, and hear all signals, whatever this process blocks (X1, X2). `setsid` is alone: it makes the group too, and
/// would fail after a `setpgid`.
pub(super) fn detach(command: &mut Command) {
    let hook = || {
        restore_signals()?;
        // SAFETY: `setsid` takes no argument and touches no memory of ours.
        if unsafe { libc::setsid() } == -1 {
            return Err(io::Error::last_os_error());
        }
        close_others();
        Ok(())
    };
    // SAFETY: the hook runs between fork and exec. It makes a few system calls, which are safe to make there, takes no
    // lock and allocates nothing: the error it may return is a number.
    unsafe { command.pre_exec(hook) };
}

/// Gives the signals of [`RESTORED`] their default action and unblocks all. What else was ignored when this process
/// started stays so (`nohup`).
fn restore_signals() -> io::Result<()> {
    for signal in RESTORED {
        // SAFETY: `SIG_DFL` is a valid disposition for every signal; the call is safe between fork and exec.
        if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` fills the set before the other call reads it; a null old set is not written. Both are safe
    // between fork and exec.
    let blocked = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
    };
    if blocked == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Marks everything behind the standard streams to be closed at exec. Ours is marked already when it is opened; this
/// covers what the starter of this process, or an embedding program, left open. Failure leaves it at that: kernels
/// before 5.11 do not know the call.
#[cfg(target_os = "linux")]
fn close_others() {
    // SAFETY: the call takes three numbers and touches no memory of ours. The pipe by which the parent learns of a
    // failed exec is in the range and marked already.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST_OTHER, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Nothing to do where no such call exists: all descriptors of ours are marked when they are opened.
#[cfg(not(target_os = "linux"))]
fn close_others() {}

/// Has processes that lose their parent below this process become its children, so that the sweep finds and reaps them
/// (X4). For the binary only: a library does not adopt the processes of its host.
///
/// # Errors
/// The system refuses.
#[cfg(target_os = "linux")]
pub fn become_subreaper() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(io::Error::from)
}

/// Other systems have no subreapers: what leaves its group is out of reach there (X5).
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn become_subreaper() -> io::Result<()> {
    Ok(())
}

/// Whether processes that lose their parent below this process become its children.
pub fn is_subreaper() -> bool {
    #[cfg(target_os = "linux")]
    let is_one = rustix::process::child_subreaper().is_ok_and(|whom| whom.is_some());
    #[cfg(not(target_os = "linux"))]
    let is_one = false;
    is_one
}

/// Duplicates a descriptor that this process was started with and can write to, by its number.
///
/// # Errors
/// `EBADF`: it is closed, one of our own, or open for reading only.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    /// Descriptors below are the standard ones; a duplicate must not take the place of one that is closed.
    const FIRST_FREE: i32 = 3;
    // SAFETY: these commands of `fcntl` take no pointer; a number that is not open is an error, not undefined.
    let (flags, status) = unsafe { (libc::fcntl(number, libc::F_GETFD), libc::fcntl(number, libc::F_GETFL)) };
    // What survived the start of this program does not close at one; whatever it opens itself does.
    let is_ours = number >= FIRST_FREE && flags & libc::FD_CLOEXEC != 0;
    if flags < 0 || status < 0 || is_ours || status & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: as above.
    let duplicate = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, FIRST_FREE) };
    if duplicate < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor, so it is open and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

/// Restores the signal's default action and raises it. Returns only if the default action does not end the process.
pub fn die_of(signal: i32) {
    // SAFETY: `SIG_DFL` is a valid disposition for every signal; neither call touches our memory. Another thread
    // may still run, which is the case for any signal death.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::os::fd::AsRawFd;

    use super::{inherited, is_ignored};

    #[test]
    fn only_a_descriptor_of_the_caller_is_duplicated() {
        let (reader, mut writer) = io::pipe().unwrap();
        for ours in [reader.as_raw_fd(), writer.as_raw_fd(), -1, 1 << 20] {
            assert_eq!(inherited(ours).unwrap_err().raw_os_error(), Some(libc::EBADF), "{ours}");
        }
        writer.write_all(b"x").unwrap();
        // The runner of the tests has a stderr, whatever it is.
        assert!(inherited(2).is_ok_and(|copy| copy.as_raw_fd() > 2));
    }

    #[test]
    fn rust_ignores_sigpipe_and_leaves_sigterm_alone() {
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGTERM));
    }
}
