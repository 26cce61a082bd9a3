//! Builds the page into `OUT_DIR/page`, from where the crate embeds it.
//!
//! The page is built by npm into `dist`, once for all of cargo's profiles and targets: what it was built from is
//! remembered as a hash, and as long as that holds only a copy is made. `TIDEGATE_WEB_DIST=folder` takes a page that
//! was built elsewhere. On docs.rs there is no page, and none is needed.

#[path = "build/guides.rs"]
mod guides;
#[path = "build/inputs.rs"]
mod inputs;
#[path = "build/npm.rs"]
mod npm;

use std::{
    env, fs,
    fs::File,
    io,
    path::{Path, PathBuf},
};

/// Stands in `dist`, so that whoever builds the page anew without cargo removes it; never embedded.
const BUILT_FROM: &str = ".built-from";

/// What went wrong, in lines; each is printed by cargo as an error of its own.
type Failure = Vec<String>;

const WAYS_OUT: &str = "three ways out: install Node 20.19, or 22.12 or newer; or set TIDEGATE_WEB_DIST to the folder of a page \
                        that was built elsewhere (`npm ci && npm run build` in web/ makes web/dist); or build without \
                        the dashboard: `--no-default-features`";

fn main() {
    println!("cargo::rerun-if-env-changed=TIDEGATE_WEB_DIST");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    if let Err(failure) = run() {
        for line in failure {
            println!("cargo::error={line}");
        }
    }
}

fn run() -> Result<(), Failure> {
    let embedded = folder_of("OUT_DIR")?.join("page");
    if env::var_os("DOCS_RS").is_some() {
        return fs::create_dir_all(&embedded).map_err(|error| on(&embedded, &error));
    }
    let web = folder_of("CARGO_MANIFEST_DIR")?;
    if let Some(prebuilt) = env::var_os("TIDEGATE_WEB_DIST").filter(|folder| !folder.is_empty()) {
        embed_prebuilt(&PathBuf::from(prebuilt), &embedded)?;
        return embed_guides(&web, &embedded);
    }
    inputs::watch();
    let state = web.join(".build");
    fs::create_dir_all(&state).map_err(|error| on(&state, &error))?;
    // Two builds at once: the second waits here, and then finds the work done.
    let lock_path = state.join("lock");
    let lock = File::create(&lock_path).map_err(|error| on(&lock_path, &error))?;
    lock.lock().map_err(|error| on(&lock_path, &error))?;
    build_page(&web)?;
    copy_afresh(&web.join("dist"), &embedded)?;
    embed_guides(&web, &embedded)
}

fn build_page(web: &Path) -> Result<(), Failure> {
    let hash = inputs::hash(web).map_err(|error| on(web, &error))?;
    let built_from = web.join("dist").join(BUILT_FROM);
    if fs::read_to_string(&built_from).is_ok_and(|built| built == hash) && web.join("dist/index.html").is_file() {
        return Ok(());
    }
    npm::check_node().map_err(with_ways_out)?;
    // Until the build is whole, `dist` counts as built from nothing.
    forget(&built_from)?;
    npm::install(web).map_err(with_ways_out)?;
    npm::run(web, &["run", "build", "--silent"]).map_err(with_ways_out)?;
    fs::write(&built_from, hash).map_err(|error| on(&built_from, &error))
}

fn embed_prebuilt(folder: &Path, embedded: &Path) -> Result<(), Failure> {
    println!("cargo::rerun-if-changed={}", folder.display());
    if !folder.join("index.html").is_file() {
        return Err(vec![format!(
            "TIDEGATE_WEB_DIST is {}, where there is no index.html; name the folder as an absolute path",
            folder.display()
        )]);
    }
    copy_afresh(folder, embedded)
}

fn embed_guides(web: &Path, embedded: &Path) -> Result<(), Failure> {
    let docs = web.join("../docs");
    println!("cargo::rerun-if-changed={}", docs.display());
    guides::render(&docs, &embedded.join("docs")).map_err(|error| on(&docs, &error))
}

/// Makes `to` a copy of `from`, without what an older page left there.
fn copy_afresh(from: &Path, to: &Path) -> Result<(), Failure> {
    if to.exists() {
        fs::remove_dir_all(to).map_err(|error| on(to, &error))?;
    }
    copy(from, to).map_err(|error| on(from, &error))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() == BUILT_FROM {
            continue;
        }
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

fn forget(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(on(path, &error)),
        _ => Ok(()),
    }
}

fn folder_of(variable: &str) -> Result<PathBuf, Failure> {
    env::var_os(variable).map(PathBuf::from).ok_or_else(|| vec![format!("cargo did not set {variable}")])
}

fn on(path: &Path, error: &io::Error) -> Failure {
    vec![format!("{}: {error}", path.display())]
}

fn with_ways_out(mut failure: Failure) -> Failure {
    failure.push(WAYS_OUT.to_owned());
    failure
}
