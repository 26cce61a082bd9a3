//! Helper processes that end with the test process, also when it is killed by SIGKILL.
//!
//! The system sends the signal of `PR_SET_PDEATHSIG` when the *thread* ends that started the process, and a test runs on a thread
//! of its own, or on one of an async runtime. [`spawn`] therefore starts all processes on one thread that lives as long as the
//! test process does. `setpriv` of util-linux makes the call, which needs no unsafe code here, and becomes the program itself, so
//! that the process id is that of the program.

use std::{
    ffi::OsStr,
    io,
    process::{Child, Command},
    sync::{
        OnceLock,
        mpsc::{Sender, channel},
    },
    thread,
};

/// A command, and where its process is reported.
type Order = (Command, Sender<io::Result<Child>>);

/// Returns a command that runs `program`, and ends with the thread that starts it. Start it by [`spawn`], unless the starting
/// thread waits for its end.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Starts a process that lives until it ends, is killed, or this process is gone.
///
/// # Panics
///
/// The program cannot be started.
#[must_use]
pub fn spawn(command: Command) -> Child {
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (starter, orders) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, started) in orders {
                // The caller waits for it.
                let _ = started.send(command.spawn());
            }
        });
        starter
    });
    let program = format!("{command:?}");
    let (reply, process) = channel();
    starter.send((command, reply)).expect("the starting thread lives as long as the process");
    let process = process.recv().expect("it answers");
    assert!(process.is_ok(), "{program} needs setpriv, of the Debian package util-linux: {process:?}");
    process.expect("it was started")
}
