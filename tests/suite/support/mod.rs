//! Runs the binary as a script would.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::Write,
    process::{Command, ExitStatus, Stdio},
};

/// What a run of the binary left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: Option<i32>,
}

/// Runs `tidegate` with these arguments, in an environment without settings, and no input.
pub(crate) fn tidegate<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Run {
    tidegate_reading(b"", arguments)
}

/// The same, with `input` on standard input.
pub(crate) fn tidegate_reading<A: AsRef<OsStr>>(input: &[u8], arguments: impl IntoIterator<Item = A>) -> Run {
    let mut child = command()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("piped");
    let output = std::thread::scope(|scope| {
        // A command that does not read its input closes it.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("the binary ends")
    });
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Run { stdout: text(output.stdout), stderr: text(output.stderr), status: ExitStatus::code(&output.status) }
}

/// The binary that is tested: what `TIDEGATE_TESTED` names, or the one that was built with the tests.
pub(crate) fn binary() -> OsString {
    env::var_os("TIDEGATE_TESTED").unwrap_or_else(|| env!("CARGO_BIN_EXE_tidegate").into())
}

/// The binary, in an environment without settings.
pub(crate) fn command() -> Command {
    let mut command = Command::new(binary());
    command.env_clear();
    command
}
