//! A pseudo-terminal with the program on it, and what is on its screen.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// Longer than anything takes that is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A terminal on which the program runs.
pub struct Terminal {
    master: File,
    slave: File,
    child: Child,
    screen: vt100::Parser,
    found: Termios,
}

impl Terminal {
    /// Starts `numaherd top` on a terminal of so many rows and columns.
    pub fn start(arguments: &[&str], rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        tcsetwinsize(&master, size(rows, columns)).unwrap();
        let found = tcgetattr(&slave).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_numaherd"))
            .arg("top")
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("NO_COLOR")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap())
            .spawn()
            .expect("the program can be started");
        Self {
            master: File::from(master),
            slave,
            child,
            screen: vt100::Parser::new(cells(rows), cells(columns), 0),
            found,
        }
    }

    /// What is on the screen.
    pub fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Whether the program has a screen of its own.
    pub fn is_taken(&self) -> bool {
        self.screen.screen().alternate_screen()
    }

    /// Reads what the program writes until this is on the screen.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.text().contains(what) {
            assert!(
                self.read(end.saturating_duration_since(Instant::now())),
                "{what:?} did not come; there is\n{}",
                self.text()
            );
        }
    }

    /// Reads once, as soon as there is something; whether there was.
    fn read(&mut self, within: Duration) -> bool {
        let mut ready = [PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN)];
        let within = Timespec {
            tv_sec: i64::try_from(within.as_secs()).unwrap(),
            tv_nsec: 0,
        };
        if poll(&mut ready, Some(&within)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 65_536];
        match self.master.read(&mut bytes) {
            Ok(read) if read > 0 => {
                self.screen.process(&bytes[..read]);
                true
            }
            _ => false,
        }
    }

    /// Types.
    pub fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Gives the terminal another size, and says so to the program, as the kernel does to those whose
    /// terminal it is.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        tcsetwinsize(&self.master, size(rows, columns)).unwrap();
        self.screen
            .screen_mut()
            .set_size(cells(rows), cells(columns));
        self.signal(Signal::WINCH);
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the program's end, and looks whether the terminal is as it was found.
    #[track_caller]
    pub fn end(mut self) -> ExitStatus {
        // What it still writes has to be taken, or it would wait for ever.
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            self.read(Duration::ZERO);
            assert!(Instant::now() < end, "it did not end");
            std::thread::yield_now();
        };
        while self.read(Duration::ZERO) {}
        assert!(!self.is_taken(), "the screen is the shell's again");
        assert!(!self.screen.screen().hide_cursor(), "the cursor is seen");
        let mode = self.screen.screen().mouse_protocol_mode();
        assert_eq!(mode, vt100::MouseProtocolMode::None);
        let now = tcgetattr(&self.slave).unwrap();
        assert_eq!(now.local_modes, self.found.local_modes);
        assert_eq!(now.input_modes, self.found.input_modes);
        assert_eq!(now.output_modes, self.found.output_modes);
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Where a test failed; it has ended otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rows or columns, of which there are some.
fn cells(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a terminal with room")
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
