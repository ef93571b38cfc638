//! Project files the user has not looked at (case 144, as far as trust goes).

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use pirn::config::{Env, JsonLevel, Sources, Trust, distrust_file, examine, load, load_with_wish, trust_file};
use pirn::model::ErrorKind;

use super::Bench;

const REMEDY: &str = "review it, then run: pirn config trust (or use --trust, or --bare)";

fn bench(text: &str) -> Bench {
    let mut bench = Bench::new(&[]);
    bench.env = Env::from_pairs([("PIRN_HOME", bench.real("home"))]);
    bench.write("work/pirn.toml", text);
    std::fs::create_dir(bench.path("work/.git")).unwrap();
    bench
}

fn at_work(bench: &Bench) -> Sources<'_> {
    Sources::new(&bench.env, bench.real("work"))
}

fn refusal(sources: &Sources<'_>) -> String {
    let record = load(sources).unwrap_err().record();
    assert_eq!((record.kind, record.hint.as_deref()), (ErrorKind::Config, Some(REMEDY)));
    record.message
}

#[test]
fn a_project_file_is_refused_until_it_is_trusted_in_one_of_the_ways_case_144() {
    let bench = bench("limits.max_turns = 3\n");
    assert_eq!(refusal(&at_work(&bench)), "pirn.toml is not trusted");
    let errors = load(&at_work(&bench)).unwrap_err().to_string();
    assert_eq!(errors, format!("pirn.toml is not trusted; {REMEDY}"));

    let turns = |sources: &Sources<'_>| load(sources).unwrap().limits.max_turns.unwrap();
    assert_eq!(turns(&Sources { trust: true, ..at_work(&bench) }), 3);
    assert_eq!(turns(&Sources { config_file: Some("pirn.toml".into()), ..at_work(&bench) }), 3);
    assert_eq!(turns(&Sources { bare: true, ..at_work(&bench) }), 200);
    let pairs = |more: &'static str| [("PIRN_HOME", bench.real("home")), (more, "1".into())];
    assert_eq!(turns(&Sources { env: &Env::from_pairs(pairs("PIRN_TRUST")), ..at_work(&bench) }), 3);
    assert_eq!(refusal(&at_work(&bench)), "pirn.toml is not trusted", "once is once");

    let trusted = trust_file(&bench.env, &bench.path("work/pirn.toml")).unwrap();
    assert_eq!((trusted.file, trusted.names), (bench.real("work/pirn.toml"), vec![]));
    assert_eq!(turns(&at_work(&bench)), 3);
    assert_eq!(examine(&at_work(&bench)).files[0].trust, Trust::Listed);
    bench.write("work/pirn.toml", "limits.max_turns = 4\n");
    assert_eq!(refusal(&at_work(&bench)), "pirn.toml has changed since it was trusted");
    trust_file(&bench.env, &bench.path("work/pirn.toml")).unwrap();
    assert_eq!(turns(&at_work(&bench)), 4);
    assert!(distrust_file(&bench.env, &bench.path("work/pirn.toml")).unwrap());
    assert!(!distrust_file(&bench.env, &bench.path("work/pirn.toml")).unwrap());
    assert_eq!(refusal(&at_work(&bench)), "pirn.toml is not trusted");
}

#[test]
fn from_a_directory_below_the_whole_path_is_named() {
    let bench = bench("");
    std::fs::create_dir(bench.path("work/sub")).unwrap();
    let message = refusal(&Sources::new(&bench.env, bench.real("work/sub")));
    assert_eq!(message, format!("{} is not trusted", bench.real("work/pirn.toml").display()));
}

#[test]
fn nothing_of_an_untrusted_file_is_interpreted() {
    // Everything wrong in it, and a file that would make reading it wait.
    let bench = bench("nonsense = 1\nmodel = \n");
    assert_eq!(load(&at_work(&bench)).unwrap_err().iter().count(), 1);
    bench.write("work/pirn.toml", "system = '@pipe'\n[providers.p]\napi_key = '!touch pwned'\n[profiles.ci]\n");
    make_pipe(&bench.path("work/pipe"));
    assert_eq!(refusal(&at_work(&bench)), "pirn.toml is not trusted");
    // A profile that may stand in it is not missed.
    assert_eq!(refusal(&Sources { profile: Some("ci".to_owned()), ..at_work(&bench) }), "pirn.toml is not trusted");
    // What is wrong elsewhere is told as well, and the wish for JSON is known.
    let sets = vec!["bogus=1".to_owned(), "output.json=result".to_owned()];
    let (wish, loaded) = load_with_wish(&Sources { sets, ..at_work(&bench) });
    assert_eq!(wish, JsonLevel::Result);
    let errors = loaded.unwrap_err().to_string();
    assert_eq!(errors, format!("pirn.toml is not trusted; {REMEDY}\n--set: unknown key bogus"));
    bench.write("work/pirn.toml", "output.json = 'events'\n");
    assert_eq!(load_with_wish(&at_work(&bench)).0, JsonLevel::Off, "its wishes are nobody's");
}

#[test]
fn every_file_that_is_named_is_trusted_with_it() {
    let text = "system = '@p.md'\n[profiles.ci]\nappend_system = ['@more/q.md', 'text']\n[tools.t]\nenabled = false\n\
                command = ['x']\nparameters_file = 't.json'\n";
    let bench = bench(text);
    bench.write("work/p.md", "one");
    bench.write("work/more/q.md", "two");
    bench.write("work/t.json", "{\"type\": \"object\"}");
    let file = bench.path("work/pirn.toml");
    let named: Vec<PathBuf> =
        ["more/q.md", "p.md", "t.json"].iter().map(|name| bench.real("work").join(name)).collect();
    assert_eq!(trust_file(&bench.env, &file).unwrap().names, named);
    assert_eq!(load(&at_work(&bench)).unwrap().system.as_deref(), Some("one"));
    for path in &named {
        let before = std::fs::read(path).unwrap();
        std::fs::write(path, "changed").unwrap();
        let wanted = format!("{}, which pirn.toml names, has changed since it was trusted", path.display());
        assert_eq!(refusal(&at_work(&bench)), wanted);
        std::fs::write(path, before).unwrap();
    }
    load(&at_work(&bench)).unwrap();
    std::fs::remove_file(bench.path("work/p.md")).unwrap();
    assert!(refusal(&at_work(&bench)).contains("p.md, which pirn.toml names, has changed"));
    let error = trust_file(&bench.env, &file).unwrap_err();
    assert!(error.message.contains("work/p.md: cannot be read: "), "{error:?}");
    // What cannot be parsed names nobody knows what.
    bench.write("work/pirn.toml", "system = \n");
    assert!(trust_file(&bench.env, &file).unwrap_err().message.contains("pirn.toml:1:"));
}

#[test]
fn trust_goes_by_the_real_path() {
    let bench = bench("limits.max_turns = 3\n");
    std::os::unix::fs::symlink(bench.real("work"), bench.path("link")).unwrap();
    trust_file(&bench.env, &bench.path("link/pirn.toml")).unwrap();
    load(&at_work(&bench)).unwrap();
    load(&Sources::new(&bench.env, bench.path("link"))).unwrap();
    // The same content elsewhere is another file.
    bench.write("other/pirn.toml", "limits.max_turns = 3\n");
    assert_eq!(refusal(&Sources::new(&bench.env, bench.real("other"))), "pirn.toml is not trusted");
}

#[test]
fn the_list_is_private_and_not_believed_where_others_can_write_it() {
    let bench = bench("");
    let file = bench.path("work/pirn.toml");
    trust_file(&bench.env, &file).unwrap();
    let list = bench.path("home/state/trust.json");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&list), mode(&bench.path("home/state"))), (0o600, 0o700));
    std::fs::set_permissions(&list, Permissions::from_mode(0o666)).unwrap();
    assert!(refusal(&at_work(&bench)).ends_with("trust.json cannot be used: others can write it"));
    std::fs::set_permissions(&list, Permissions::from_mode(0o600)).unwrap();
    for (content, wanted) in [("no JSON", "expected"), ("{\"version\": 9, \"files\": {}}", "version 9 is not known")] {
        std::fs::write(&list, content).unwrap();
        assert!(refusal(&at_work(&bench)).contains(wanted));
        let error = trust_file(&bench.env, &file).unwrap_err();
        assert!(error.message.contains(wanted), "what is not understood is not replaced: {error:?}");
        assert_eq!(std::fs::read_to_string(&list).unwrap(), content);
    }
}

#[test]
fn two_projects_are_trusted_side_by_side_and_a_writer_is_not_waited_for() {
    let bench = bench("");
    bench.write("other/pirn.toml", "");
    trust_file(&bench.env, &bench.path("work/pirn.toml")).unwrap();
    trust_file(&bench.env, &bench.path("other/pirn.toml")).unwrap();
    load(&at_work(&bench)).unwrap();
    load(&Sources::new(&bench.env, bench.real("other"))).unwrap();
    let lock = std::fs::File::open(bench.path("home/state/trust.lock")).unwrap();
    lock.lock().unwrap();
    let error = trust_file(&bench.env, &bench.path("work/pirn.toml")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
}

#[test]
fn without_a_home_a_project_file_is_not_trusted_and_trusting_names_the_variable_cfg_05() {
    let bench = bench("");
    let env = Env::from_pairs([("PATH", "/bin")]);
    assert_eq!(refusal(&Sources { env: &env, ..at_work(&bench) }), "pirn.toml is not trusted");
    load(&Sources { env: &env, trust: true, ..at_work(&bench) }).unwrap();
    let error = trust_file(&env, &bench.path("work/pirn.toml")).unwrap_err();
    assert!(error.message.contains("HOME is not set"), "{error:?}");
}

fn make_pipe(path: &std::path::Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .unwrap();
}

#[test]
fn a_pipe_or_a_huge_file_in_the_place_of_a_project_file_is_an_error_at_once() {
    let bench = bench("");
    let file = bench.path("work/pirn.toml");
    std::fs::remove_file(&file).unwrap();
    make_pipe(&file);
    let (done, waiting) = mpsc::channel();
    let (env, cwd) = (bench.env.clone(), bench.real("work"));
    std::thread::spawn(move || {
        let by = |trust| load(&Sources { trust, ..Sources::new(&env, cwd.clone()) }).unwrap_err().to_string();
        done.send([by(false), by(true)]).unwrap();
    });
    let told = waiting.recv_timeout(Duration::from_secs(20)).expect("a pipe is not waited for");
    assert_eq!(told, ["pirn.toml: cannot be read: not a regular file"; 2]);
    std::fs::remove_file(&file).unwrap();
    let huge = std::fs::File::create(&file).unwrap();
    huge.set_len(1 << 40).unwrap();
    let error = load(&Sources { trust: true, ..at_work(&bench) }).unwrap_err().to_string();
    assert_eq!(error, "pirn.toml: cannot be read: larger than 1048576 bytes");
    // So is one that a trusted file names.
    std::fs::remove_file(&file).unwrap();
    bench.write("work/pirn.toml", "system = '@pipe'\n");
    make_pipe(&bench.path("work/pipe"));
    let error = load(&Sources { trust: true, ..at_work(&bench) }).unwrap_err().to_string();
    assert!(error.ends_with("work/pipe: not a regular file"), "{error}");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("nowhere", &file).unwrap();
    let error = load(&at_work(&bench)).unwrap_err().to_string();
    assert!(error.starts_with("pirn.toml: cannot be read: "), "a link to nothing is found: {error}");
}

#[test]
fn a_key_is_written_out_in_the_users_own_file_and_never_in_a_projects() {
    let text = "[providers.p]\nbase_url = 'http://h'\napi_key = 'sk-1234567890'\n";
    let bench = bench("");
    let private = |name: &str, text: &str, mode| {
        bench.write(name, text);
        std::fs::set_permissions(bench.path(name), Permissions::from_mode(mode)).unwrap();
        load(&Sources { trust: true, ..at_work(&bench) }).map_err(|errors| errors.to_string())
    };
    let user = "home/config/pirn.toml";
    assert!(private(user, text, 0o600).is_ok());
    assert!(private(user, text, 0o644).unwrap_err().contains("api_key may be written out only in a file of your own"));
    assert!(private(user, "", 0o600).is_ok());
    let error = private("work/pirn.toml", text, 0o600).unwrap_err();
    assert!(error.starts_with("pirn.toml:3:11: providers.p.api_key may be written out only"), "{error}");
}
