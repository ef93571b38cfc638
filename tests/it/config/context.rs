//! Context files: which are read, in which order, and how much of them.

use std::path::PathBuf;

use pirn::config::{ContextFiles, Env, Sources, context_files, load};

use super::Bench;

fn bench() -> Bench {
    let mut bench = Bench::new(&[]);
    std::fs::create_dir_all(bench.path("work/.git")).unwrap();
    std::fs::create_dir_all(bench.path("work/a/b")).unwrap();
    bench.env = Env::from_pairs([("HOME", bench.real("home"))]);
    bench
}

fn read(bench: &Bench, cwd: &str, sets: &[&str]) -> ContextFiles {
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    let sources = Sources { sets, trust: true, ..Sources::new(&bench.env, bench.real(cwd)) };
    context_files(&load(&sources).unwrap(), &bench.real(cwd), &bench.env)
}

fn texts(found: &ContextFiles) -> Vec<&str> {
    found.files.iter().map(|file| file.text.as_str()).collect()
}

#[test]
fn the_nearest_file_comes_first_then_those_up_to_the_root_then_the_users_own() {
    let bench = bench();
    for (name, text) in [
        ("AGENTS.md", "outside"),
        ("work/AGENTS.md", "root"),
        ("work/a/b/AGENTS.md", "nearest"),
        ("home/.config/pirn/AGENTS.md", "user"),
        ("work/a/OTHER.md", "other"),
    ] {
        bench.write(name, text);
    }
    let found = read(&bench, "work/a/b", &[]);
    assert_eq!((texts(&found), &found.warnings), (vec!["nearest", "root", "user"], &vec![]));
    assert_eq!(found.files[1].path, bench.real("work/AGENTS.md"));
    let both = read(&bench, "work/a/b", &["context.files=['OTHER.md', 'AGENTS.md', '']"]);
    assert_eq!(texts(&both), ["nearest", "other", "root", "user"]);
    assert_eq!(read(&bench, "work/a/b", &["context.files=[]"]), ContextFiles::default());
    let bare = load(&Sources { bare: true, ..Sources::new(&bench.env, bench.real("work")) }).unwrap();
    assert_eq!(context_files(&bare, &bench.real("work"), &bench.env), ContextFiles::default());
}

#[test]
fn where_nothing_marks_a_root_only_the_working_directory_is_looked_at() {
    let bench = bench();
    std::fs::remove_dir(bench.path("work/.git")).unwrap();
    bench.write("AGENTS.md", "anybody's");
    bench.write("work/AGENTS.md", "project");
    bench.write("work/a/AGENTS.md", "here");
    assert_eq!(texts(&read(&bench, "work/a", &[])), ["here"]);
    assert_eq!(texts(&read(&bench, "work/a/b", &[])), Vec::<&str>::new());
    // The project file in use marks one.
    bench.write("work/pirn.toml", "");
    assert_eq!(texts(&read(&bench, "work/a/b", &[])), ["here", "project"]);
    // Without a home there is no file of the user's own, and nothing takes its place (CFG-05).
    let env = Env::from_pairs([("HOME", ".")]);
    let settings = load(&Sources { trust: true, ..Sources::new(&env, bench.real("work/a")) }).unwrap();
    assert_eq!(texts(&context_files(&settings, &bench.real("work/a"), &env)), ["here", "project"]);
}

#[test]
fn all_of_them_together_have_one_limit_and_are_cut_at_a_line() {
    let bench = bench();
    bench.write("work/a/AGENTS.md", "0123456789\n");
    bench.write("work/AGENTS.md", "one\ntwo\nthree\n");
    bench.write("home/.config/pirn/AGENTS.md", "never");
    let with = |limit: &str| read(&bench, "work/a", &[&format!("context.max_bytes={limit}")]);
    let exact = with("30");
    assert_eq!(texts(&exact), ["0123456789\n", "one\ntwo\nthree\n", "never"]);
    let cut = with("21");
    assert_eq!(texts(&cut), ["0123456789\n", "one\ntwo\n[cut at 21 bytes]"]);
    let said = "context files are limited to 21 bytes together";
    let (root, user) = (bench.real("work/AGENTS.md"), bench.real("home/.config/pirn/AGENTS.md"));
    assert_eq!(
        cut.warnings,
        [format!("{} is cut: {said}", root.display()), format!("{} is left out: {said}", user.display())]
    );
    let full = with("25");
    assert_eq!((texts(&full).len(), full.warnings.len()), (2, 1), "nothing is left for the last one");
    bench.write("work/a/AGENTS.md", &"line of text\n".repeat(20_000));
    let large = read(&bench, "work/a", &[]);
    assert!(
        large.files[0].text.ends_with("line of text\n[cut at 64KB]") && large.files[0].text.len() <= (64 << 10) + 20
    );
    // One line, cut inside of a character.
    bench.write("work/a/AGENTS.md", &"\u{e9}".repeat(600));
    assert_eq!(texts(&with("1025")), [format!("{}\n[cut at 1025 bytes]", "\u{e9}".repeat(512))]);
}

#[test]
fn a_file_that_cannot_be_used_is_a_warning_and_is_not_waited_for() {
    let bench = bench();
    let file = bench.path("work/AGENTS.md");
    let warning = || {
        let found = read(&bench, "work", &[]);
        assert_eq!(found.warnings.len(), 1, "{found:?}");
        let text = found.warnings[0].strip_prefix(&format!("{} ", bench.real("work").join("AGENTS.md").display()));
        (text.unwrap().to_owned(), found.files.into_iter().map(|file| file.text).collect::<Vec<_>>())
    };
    std::fs::create_dir(&file).unwrap();
    assert_eq!(warning(), ("is left out: not a regular file".to_owned(), vec![]));
    std::fs::remove_dir(&file).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(warning(), ("is left out: not a regular file".to_owned(), vec![]));
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("AGENTS.md", &file).unwrap();
    assert!(warning().0.starts_with("is left out: ") && warning().1.is_empty(), "a link to itself");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, b"caf\xe9 au lait\n").unwrap();
    let wanted = "is not UTF-8 near byte 3; what cannot be read is replaced";
    assert_eq!(warning(), (wanted.to_owned(), vec!["caf\u{fffd} au lait\n".to_owned()]));
    std::fs::write(&file, b"\xff\xfeA\0G\0").unwrap();
    assert_eq!(warning(), ("is left out: it is not text".to_owned(), vec![]));
}

#[test]
fn a_file_counts_once_whatever_names_it_has_and_a_blank_one_not_at_all() {
    let bench = bench();
    bench.write("work/AGENTS.md", "\u{feff}text\n");
    std::os::unix::fs::symlink("AGENTS.md", bench.path("work/CLAUDE.md")).unwrap();
    std::os::unix::fs::symlink("../AGENTS.md", bench.path("work/a/AGENTS.md")).unwrap();
    bench.write("work/a/b/AGENTS.md", " \n\n");
    let found = read(&bench, "work/a/b", &["context.files=['CLAUDE.md', 'AGENTS.md']"]);
    assert_eq!((texts(&found), &found.warnings), (vec!["text\n"], &vec![]));
    let paths: Vec<PathBuf> = found.files.into_iter().map(|file| file.path).collect();
    assert_eq!(paths, [bench.real("work").join("a/AGENTS.md")]);
}
