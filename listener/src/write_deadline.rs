//! A stream whose writes fail if the peer does not read them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A stream whose writes fail once the peer has read nothing for a period.
///
/// The period begins with a write that has to wait, and ends when a part of a write is taken. The task that waits is woken at the
/// end of the period, whether the peer sends anything or not.
#[derive(Debug)]
pub struct WriteDeadline<S> {
    stream: S,
    period: Duration,
    /// The end of the period, while a write waits.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteDeadline<S> {
    /// Returns a stream whose writes may wait for `period`.
    #[must_use]
    pub fn new(stream: S, period: Duration) -> Self {
        Self { stream, period, alarm: None }
    }

    /// Fails a write that has waited for the whole period.
    fn fail_if_overdue(
        &mut self,
        polled: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if polled.is_ready() {
            self.alarm = None;
            return polled;
        }
        let period = self.period;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(period)));
        alarm.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteDeadline<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.fail_if_overdue(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.fail_if_overdue(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, io::Read, thread};

    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Connects the stream of a listener with a peer.
    async fn connected(period: Duration) -> (WriteDeadline<TcpStream>, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let peer = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let (stream, _) = listener.accept().await.expect("a connection");
        (WriteDeadline::new(stream, period), peer)
    }

    /// Writes this number of bytes, unless the peer stops reading.
    async fn write(stream: &mut WriteDeadline<TcpStream>, mut bytes: usize) -> io::Result<()> {
        let piece = vec![7; 1 << 16];
        while bytes > 0 {
            let part = &piece[..piece.len().min(bytes)];
            bytes -= poll_fn(|context| Pin::new(&mut *stream).poll_write(context, part)).await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_write_fails_if_the_peer_reads_nothing() {
        let (mut stream, _peer) = connected(Duration::from_millis(300)).await;
        let error = write(&mut stream, usize::MAX).await.expect_err("the peer takes nothing");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(write(&mut stream, 1).await.is_err(), "later writes fail too");
    }

    #[tokio::test]
    async fn a_write_that_the_peer_reads_may_take_longer_than_the_period() {
        const BYTES: usize = 64 << 20;
        let (mut stream, mut peer) = connected(Duration::from_mins(1)).await;
        let reading = thread::spawn(move || {
            let (mut taken, mut buffer) = (0, vec![0; 1 << 16]);
            while taken < BYTES {
                taken += peer.read(&mut buffer).expect("more bytes");
            }
        });
        write(&mut stream, BYTES).await.expect("the peer takes it");
        reading.join().expect("no panic");
        assert!(stream.alarm.is_none(), "no write waits");
    }
}
