//! Processes of proxies that stand before a service: Envoy, nginx, Caddy.

use std::{
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::{port::ReservedPort, process, wait_until};

/// The path at which `scripts/setup` installs Envoy.
const ENVOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/envoy/bin/envoy");

/// Returns the command of an Envoy with one thread, by the configuration of this file. It writes errors to standard error.
#[must_use]
pub fn envoy(file: &Path) -> Command {
    let mut envoy = process::command(ENVOY);
    envoy.args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "error", "--config-path"]).arg(file);
    envoy.stderr(Stdio::inherit());
    envoy
}

/// A proxy that listens. It ends with the test.
#[derive(Debug)]
pub struct ProxyProcess {
    process: Child,
    port: ReservedPort,
    // Its folder goes after it.
    _folder: TempDir,
}

impl ProxyProcess {
    /// Runs a command of [`process::command`] until the proxy listens at `port`; its files are in `folder`.
    ///
    /// # Panics
    ///
    /// It cannot be started, it ends, or it does not listen within [`PATIENCE`](crate::PATIENCE).
    #[must_use]
    pub fn start(command: Command, port: ReservedPort, folder: TempDir) -> Self {
        let mut proxy = Self { process: process::spawn(command), port, _folder: folder };
        wait_until("the proxy listens", || {
            let end = proxy.process.try_wait().expect("it is ours");
            assert_eq!(end, None, "the proxy ended; scripts/setup installs it");
            TcpStream::connect(proxy.address()).is_ok()
        });
        proxy
    }

    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
