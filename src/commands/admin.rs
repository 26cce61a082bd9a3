//! `tidegate admin`: the control plane alone. Its engine compiles policies and answers no checks.

use std::sync::Arc;

use tidegate::Engine;
use tidegate_admin::Admin;

use crate::{
    output::{CommandError, CommandStatus},
    server::{
        authorize::AddressArguments,
        control_plane::{ControlPlaneArguments, LocalNode, serve},
        listeners::build_info,
        process::{bind, raise_descriptors, runtime, start_logging},
    },
    value_parsers::SampleRate,
};

/// The capacity for keys of an engine that answers no checks.
const MAX_KEYS: usize = 1_000;

pub(crate) fn run(
    arguments: &ControlPlaneArguments,
    addresses: &AddressArguments,
    no_color: bool,
) -> Result<CommandStatus, CommandError> {
    start_logging(&arguments.log, no_color)?;
    raise_descriptors(Admin::CONNECTIONS_MAX);
    let admin = bind(arguments.admin, "the dashboard", "--admin")?;
    let engine = Arc::new(Engine::with_max_keys(MAX_KEYS).with_ipv6_prefix(addresses.ipv6_prefix));
    let node = LocalNode { engine, store: None, record: SampleRate(None), urls: None, process: build_info() };
    runtime()?.block_on(serve(arguments, admin, node, None))
}
