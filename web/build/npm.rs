//! Node and npm: are they there, are the packages those of the lock file, and what did they say when they failed.

use std::{fs, path::Path, process::Command};

use crate::Failure;

const NPM: &str = if cfg!(windows) { "npm.cmd" } else { "npm" };
/// Lines of npm's output that a failure repeats.
const LAST_LINES: usize = 30;
/// Stands in `node_modules`, so that whoever replaces that folder removes it too.
const INSTALLED: &str = "node_modules/.tidegate-lock";
/// A package that only development needs.
const DEVELOPMENT: &str = "node_modules/svelte-check";

pub(crate) fn check_node() -> Result<(), Failure> {
    let needed = "the dashboard is built with Node 20.19 or newer of 20, or 22.12 or newer";
    let answer = Command::new("node").arg("--version").output();
    let output = answer.map_err(|error| vec![format!("{needed}, and `node --version` failed: {error}")])?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if parse(&version).is_some_and(is_enough) {
        return Ok(());
    }
    Err(vec![format!("{needed}, and `node --version` says `{version}`")])
}

/// As `engines` in package.json has it: what the build tools ask for.
fn is_enough((major, minor): (u32, u32)) -> bool {
    match major {
        20 => minor >= 19,
        22 => minor >= 12,
        _ => major > 22,
    }
}

fn parse(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix('v')?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Installs the packages unless those of this very lock file are there.
pub(crate) fn install(web: &Path) -> Result<(), Failure> {
    let lock_path = web.join("package-lock.json");
    let lock = fs::read_to_string(&lock_path).map_err(|error| vec![format!("{}: {error}", lock_path.display())])?;
    let marker = web.join(INSTALLED);
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    let mut arguments = vec!["ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"];
    // Whoever works on the page keeps the tools for it.
    if !web.join(DEVELOPMENT).is_dir() {
        arguments.push("--omit=dev");
    }
    run(web, &arguments)?;
    fs::write(&marker, lock).map_err(|error| vec![format!("{}: {error}", marker.display())])
}

pub(crate) fn run(web: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let command = format!("npm {}", arguments.join(" "));
    let answer = Command::new(NPM).args(arguments).current_dir(web).output();
    let output = answer.map_err(|error| vec![format!("`{command}` did not start: {error}")])?;
    if output.status.success() {
        return Ok(());
    }
    let mut failure = vec![format!("`{command}` in {} ended with {}; it said:", web.display(), output.status)];
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let is_telling = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("at ");
    let lines: Vec<&str> = said.lines().filter(is_telling).collect();
    failure.extend(lines.iter().skip(lines.len().saturating_sub(LAST_LINES)).map(|line| format!("  {line}")));
    Err(failure)
}
