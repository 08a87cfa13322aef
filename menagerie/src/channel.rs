//! The channel between a client and its server, for one number at a time: two pipes, between threads or processes, or
//! two mailboxes in shared memory, where the waiting side sleeps on a futex.

use crate::sync::{lock, wait_while};
use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex};

/// One end of a channel. Dropping it notifies the other end.
pub trait Wire: Send {
    /// Sends a number.
    fn send(&mut self, number: u64) -> io::Result<()>;

    /// Waits for a number. None if the other end is dropped.
    fn receive(&mut self) -> io::Result<Option<u64>>;
}

/// An end with two pipes.
pub struct Pipes<R, W> {
    from: R,
    to: W,
}

impl<R, W> Pipes<R, W> {
    /// Receives from `from`, sends to `to`.
    pub fn new(from: R, to: W) -> Pipes<R, W> {
        Pipes { from, to }
    }
}

impl<R: Read + Send, W: Write + Send> Wire for Pipes<R, W> {
    fn send(&mut self, number: u64) -> io::Result<()> {
        self.to.write_all(&number.to_ne_bytes())?;
        self.to.flush()
    }

    fn receive(&mut self) -> io::Result<Option<u64>> {
        let mut bytes = [0; 8];
        match self.from.read_exact(&mut bytes) {
            Ok(()) => Ok(Some(u64::from_ne_bytes(bytes))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The two ends of a channel.
pub type Ends = [Box<dyn Wire>; 2];

/// Two ends with two pipes, for threads of one process.
pub fn pipes() -> io::Result<Ends> {
    let (first_from, second_to) = io::pipe()?;
    let (second_from, first_to) = io::pipe()?;
    Ok([
        Box::new(Pipes::new(first_from, first_to)),
        Box::new(Pipes::new(second_from, second_to)),
    ])
}

/// Two ends with two mailboxes, for threads of one process.
pub fn mailboxes() -> Ends {
    let [first, second] = [(); 2].map(|()| Arc::<Mailbox>::default());
    let end = |from: &Arc<Mailbox>, to: &Arc<Mailbox>| Mailboxes {
        from: Arc::clone(from),
        to: Arc::clone(to),
    };
    [
        Box::new(end(&first, &second)),
        Box::new(end(&second, &first)),
    ]
}

/// Room for one number.
#[derive(Default)]
struct Mailbox {
    content: Mutex<Content>,
    changed: Condvar,
}

#[derive(Default)]
enum Content {
    #[default]
    Empty,
    Number(u64),
    Closed,
}

impl Mailbox {
    fn set(&self, content: Content) {
        let mut present = lock(&self.content);
        if !matches!(*present, Content::Closed) {
            *present = content;
        }
        drop(present);
        self.changed.notify_all();
    }
}

struct Mailboxes {
    from: Arc<Mailbox>,
    to: Arc<Mailbox>,
}

impl Wire for Mailboxes {
    fn send(&mut self, number: u64) -> io::Result<()> {
        if matches!(*lock(&self.to.content), Content::Closed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.to.set(Content::Number(number));
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Option<u64>> {
        let is_empty = |content: &mut Content| matches!(content, Content::Empty);
        let mailbox = &*self.from;
        let mut content = wait_while(&mailbox.changed, lock(&mailbox.content), is_empty);
        if let Content::Number(number) = *content {
            *content = Content::Empty;
            return Ok(Some(number));
        }
        Ok(None)
    }
}

impl Drop for Mailboxes {
    fn drop(&mut self) {
        self.to.set(Content::Closed);
        self.from.set(Content::Closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converse(mut client: Box<dyn Wire>, mut server: Box<dyn Wire>) {
        let serving = std::thread::spawn(move || {
            while let Some(number) = server.receive().unwrap() {
                server.send(number + 1).unwrap();
            }
        });
        for number in 0..100 {
            client.send(number).unwrap();
            assert_eq!(client.receive().unwrap(), Some(number + 1));
        }
        drop(client);
        serving.join().unwrap();
    }

    #[test]
    fn every_number_is_answered_until_the_client_leaves() {
        let [client, server] = pipes().unwrap();
        converse(client, server);
        let [client, server] = mailboxes();
        converse(client, server);
    }

    #[test]
    fn a_server_that_leaves_is_noticed() {
        let [mut client, server] = pipes().unwrap();
        drop(server);
        assert_eq!(client.receive().unwrap(), None);
        assert!(client.send(1).is_err());
        let [mut client, server] = mailboxes();
        drop(server);
        assert_eq!(client.receive().unwrap(), None);
        assert!(client.send(1).is_err());
    }
}
