//! Helpers that run the binary as a script does, and start the servers that several tests need.

pub(crate) mod fleet;
pub(crate) mod proxy;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod shared;

use std::{
    env,
    ffi::{OsStr, OsString},
    io::Write,
    process::{Command, ExitStatus, Stdio},
};

use tidegate_testkit::process;

/// The arguments of a server whose ports the system chooses: the usual ports may be in use.
pub(crate) const SERVE: [&str; 7] =
    ["serve", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];

/// The output and the status of a run of the binary.
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

/// Runs `tidegate` as [`tidegate()`] does, with `input` on standard input.
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

/// Returns the path of the binary that is tested: what `TIDEGATE_TESTED` names, or the one that was built with the tests.
pub(crate) fn binary() -> OsString {
    env::var_os("TIDEGATE_TESTED").unwrap_or_else(|| env!("CARGO_BIN_EXE_tidegate").into())
}

/// Returns a command that runs the binary, in an environment without settings. It ends with the thread that starts it, or by
/// [`process::spawn`] with the test process.
pub(crate) fn command() -> Command {
    let mut command = process::command(binary());
    command.env_clear();
    command
}
