//! A hostile caller, which connects from an address of its own on this machine, beside one that behaves.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    thread,
};

use tokio::{net::TcpSocket, runtime};

use crate::PATIENCE;

/// The address of the hostile caller. Others connect from 127.0.0.1.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The buffers of a connection that is to hold little.
const NARROW_BYTES: u32 = 16 << 10;

/// Connects from [`ADDRESS`].
///
/// # Panics
///
/// Nothing listens there.
#[must_use]
pub fn connect(to: SocketAddr) -> TcpStream {
    connect_by(to, |_| {})
}

/// Connects from [`ADDRESS`]; the system keeps little of what is sent or not read at this end.
///
/// # Panics
///
/// Nothing listens there.
#[must_use]
pub fn connect_narrow(to: SocketAddr) -> TcpStream {
    connect_by(to, |socket| {
        socket.set_send_buffer_size(NARROW_BYTES).expect("a size");
        socket.set_recv_buffer_size(NARROW_BYTES).expect("a size");
    })
}

fn connect_by(to: SocketAddr, prepare: impl FnOnce(&TcpSocket)) -> TcpStream {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((ADDRESS, 0).into()).expect("an address of this machine");
        prepare(&socket);
        socket.connect(to).await.expect("the server listens").into_std().expect("a socket")
    });
    stream.set_nonblocking(false).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Sends these bytes from [`ADDRESS`], and nothing after them. Returns all that is answered until the server has ended the
/// connection.
///
/// # Panics
///
/// Nothing listens there, or the server does not end the connection within [`PATIENCE`].
#[must_use]
pub fn exchange(to: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = connect(to);
    // Errors: the server has ended the connection before it had all.
    let _ = stream.write_all(bytes.as_ref());
    let _ = stream.shutdown(Shutdown::Write);
    let mut received = Vec::new();
    if let Err(error) = stream.read_to_end(&mut received) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is not ended: {}", received.escape_ascii());
    }
    String::from_utf8_lossy(&received).into_owned()
}

/// Attacks again and again, once at least, until a caller beside it has asked for all that it wants.
///
/// # Panics
///
/// One of the two panics.
pub fn beside(caller: impl FnOnce() + Send, mut attack: impl FnMut()) {
    thread::scope(|scope| {
        let caller = scope.spawn(caller);
        loop {
            attack();
            if caller.is_finished() {
                break;
            }
        }
    });
}
