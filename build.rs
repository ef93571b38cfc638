//! Prepares the texts that the program carries: the lists of models and providers become JSON, which it reads anyway;
//! what it rarely looks at is packed, the model list and the completion scripts.
//!
//! Keeps true: what is packed says what the files of the repository say; the specs of the model list stay readable, so
//! that a look-up unpacks one block; the same files give the same bytes.
//!
//! Must not know: what a record or a script says.
#![expect(clippy::disallowed_methods, reason = "a build reads what cargo tells it and writes into cargo's directory")]

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;

const MODELS: &str = "config/models.toml";
const PROVIDERS: &str = "config/providers.toml";
const COMPLETIONS: &str = "completions";
/// Models in a block: small enough to unpack unnoticed, large enough to share what they repeat.
const BLOCK_MODELS: usize = 32;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={MODELS}");
    println!("cargo::rerun-if-changed={PROVIDERS}");
    println!("cargo::rerun-if-changed={COMPLETIONS}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    models(&out)?;
    providers(&out)?;
    completions(&out)
}

/// The specs in the order of their bytes, which is that of the file, and blocks of the records, one a line.
fn models(out: &Path) -> Outcome<()> {
    let list: toml::Table = fs::read_to_string(MODELS)?.parse()?;
    let mut specs = String::from("\n");
    let mut records = Vec::new();
    for (spec, record) in &list {
        writeln!(specs, "{spec}")?;
        records.push(serde_json::to_string(record)?);
    }
    fs::write(out.join("models.txt"), specs)?;
    let blocks: Vec<String> = records.chunks(BLOCK_MODELS).map(|block| block.join("\n")).collect();
    let mut source = format!("const BLOCK_MODELS: usize = {BLOCK_MODELS};\n");
    writeln!(source, "const BLOCKS: [Packed; {}] = [", blocks.len())?;
    for (at, block) in blocks.iter().enumerate() {
        writeln!(source, "{},", packed(out, &format!("models-{at}"), block.as_bytes())?)?;
    }
    source.push_str("];\n");
    Ok(fs::write(out.join("models.rs"), source)?)
}

fn providers(out: &Path) -> Outcome<()> {
    let list: toml::Table = fs::read_to_string(PROVIDERS)?.parse()?;
    Ok(fs::write(out.join("providers.json"), serde_json::to_string(&list)?)?)
}

/// Each file under its name.
fn completions(out: &Path) -> Outcome<()> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(COMPLETIONS)? {
        files.push(entry?.path());
    }
    files.sort();
    let mut source = format!("const SCRIPTS: [(&str, Packed); {}] = [\n", files.len());
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or("a script has no readable name")?;
        writeln!(source, "({name:?}, {}),", packed(out, name, &fs::read(&path)?)?)?;
    }
    source.push_str("];\n");
    Ok(fs::write(out.join("completions.rs"), source)?)
}

/// Writes the packed form of a text and returns the expression that includes it.
fn packed(out: &Path, name: &str, text: &[u8]) -> Outcome<String> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text)?;
    let file = format!("{name}.deflate");
    fs::write(out.join(&file), encoder.finish()?)?;
    let path = format!("/{file}");
    Ok(format!("Packed {{ bytes: include_bytes!(concat!(env!(\"OUT_DIR\"), {path:?})), length: {} }}", text.len()))
}
