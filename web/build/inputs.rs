//! What the page is built from: watched by cargo, and hashed to tell whether `dist` is up to date.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
};

/// Never the folder itself: `node_modules` and `dist` in it change with every build.
const INPUTS: [&str; 9] = [
    "app",
    "build",
    "build.rs",
    "scripts",
    "package.json",
    "package-lock.json",
    "svelte.config.js",
    "tsconfig.json",
    "vite.config.ts",
];

pub(crate) fn watch() {
    for path in INPUTS {
        println!("cargo::rerun-if-changed={path}");
    }
}

/// A hash of the names and contents of all inputs.
pub(crate) fn hash(web: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    for input in INPUTS {
        collect(&web.join(input), &mut files)?;
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.strip_prefix(web).unwrap_or(&file).hash(&mut hasher);
        fs::read(&file)?.hash(&mut hasher);
    }
    Ok(format!("{:016x}\n", hasher.finish()))
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}
