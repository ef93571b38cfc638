#![expect(clippy::disallowed_methods, reason = "tests write files by hand")]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use super::{PlaceError, check_owner, inbox_dir, make_private_dir, no_locks, slug, spill_dir};
use crate::model::{ErrorKind, ErrorRecord};

fn sha8(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    hash.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

#[test]
fn a_slug_is_the_path_in_plain_characters_cut_to_100_and_eight_digits_of_its_hash() {
    // The digits of one path are fixed, so that every version finds the same directory.
    assert_eq!(slug(Path::new("/home/me/proj")), "-home-me-proj4c3b4937");
    let long = format!("/{}", "x".repeat(300));
    let cases: [(&[u8], String); 5] = [
        (b"/", "-".to_owned()),
        (b"/a b/c.d_e-f", "-a-b-c.d_e-f".to_owned()),
        ("/é".as_bytes(), "---".to_owned()),
        (b"/\xff\n", "---".to_owned()),
        (long.as_bytes(), format!("-{}", "x".repeat(99))),
    ];
    for (path, shown) in cases {
        let expected = format!("{shown}{}", sha8(path));
        assert_eq!(slug(Path::new(OsStr::from_bytes(path))), expected, "{path:?}");
    }
    assert_ne!(slug(Path::new("/a b")), slug(Path::new("/a-b")), "two directories never share one by their looks");
}

#[test]
fn companions_stand_beside_the_session_file() {
    let file = Path::new("/s/20261130T135141Z_0199.jsonl");
    assert_eq!(spill_dir(file), Path::new("/s/20261130T135141Z_0199.d"));
    assert_eq!(inbox_dir(file), Path::new("/s/20261130T135141Z_0199.inbox"));
}

#[test]
fn directories_that_are_made_are_private_and_those_that_exist_stay_as_they_are() {
    let root = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let above = root.path().join("shared");
    fs::create_dir(&above).unwrap();
    fs::set_permissions(&above, Permissions::from_mode(0o755)).unwrap();
    let dir = above.join("a/b/c");
    make_private_dir(&dir, true).unwrap();
    for made in [above.join("a"), above.join("a/b"), dir.clone()] {
        assert_eq!(mode(&made), 0o700, "{} (SES-15)", made.display());
    }
    assert_eq!(mode(&above), 0o755);
    make_private_dir(&dir, false).unwrap();
    fs::write(above.join("file"), "").unwrap();
    assert!(matches!(make_private_dir(&above.join("file"), false), Err(PlaceError::Io { .. })));
    assert!(matches!(make_private_dir(&above.join("file/x"), false), Err(PlaceError::Io { .. })));
}

#[test]
fn a_directory_of_another_user_is_refused_if_others_can_exchange_its_files() {
    let us = rustix::process::geteuid().as_raw();
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    fs::create_dir(&dir).unwrap();
    let link = root.path().join("l");
    symlink(&dir, &link).unwrap();
    for mode in [0o700, 0o770, 0o777] {
        fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
        check_owner(&dir).unwrap();
        check_owner(&link).unwrap();
    }
    if us != 0 {
        // Only the administrator can give files away; `/tmp` is the one that everybody can see.
        assert!(matches!(check_owner(Path::new("/tmp")), Err(PlaceError::NotOurs { .. })));
        return;
    }
    let other = rustix::fs::Uid::from_raw(us + 1);
    let give = |path: &Path| {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(rustix::fs::CWD, path, Some(other), None, flags).unwrap();
    };
    give(&dir);
    for (mode, refused) in [(0o700, false), (0o755, false), (0o775, true), (0o777, true)] {
        fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
        for path in [&dir, &link] {
            assert_eq!(matches!(check_owner(path), Err(PlaceError::NotOurs { .. })), refused, "{mode:o}");
        }
    }
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    give(&link);
    assert!(matches!(check_owner(&link), Err(PlaceError::NotOurs { how: "is a link", .. })));
}

#[test]
fn a_directory_that_can_not_be_locked_is_refused_naming_the_setting_whatever_the_error_case_127() {
    for number in [libc::EOPNOTSUPP, libc::ENOLCK, libc::ENOSYS, libc::EIO] {
        let error = no_locks(Path::new("/net/.lock"), &std::io::Error::from_raw_os_error(number));
        let record = ErrorRecord::from(error);
        assert_eq!(record.kind, ErrorKind::Storage);
        assert!(record.message.starts_with("/net/.lock: this file system can not lock files ("), "{}", record.message);
        assert!(record.hint.unwrap().contains("session.lock = \"off\""));
    }
}
