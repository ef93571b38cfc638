//! The system calls no safe wrapper in the tree offers. Each block says why it is sound.
#![expect(unsafe_code, reason = "the one audited module with unsafe code")]

use std::mem::MaybeUninit;

/// SIGHUP, SIGINT and SIGTERM by number.
pub const SIGNALS: [i32; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

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
    use super::is_ignored;

    #[test]
    fn rust_ignores_sigpipe_and_leaves_sigterm_alone() {
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGTERM));
    }
}
