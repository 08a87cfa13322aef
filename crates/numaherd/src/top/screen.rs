//! The terminal: taken over, drawn on, and left as it was found on every way out: the end, an error, a
//! signal, a panic of any thread.

use std::io::{self, Stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use numaherd_show::top::{Again, Key, Top};
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::Show;
use ratatui_crossterm::crossterm::event::{
    self, DisableMouseCapture, EnableMouseCapture, Event, KeyCode, KeyEvent, KeyEventKind,
    KeyModifiers, MouseButton, MouseEventKind,
};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    self, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::SIGTSTP;

/// Whether the terminal is ours now.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Columns and rows of the terminal, if standard output is one.
pub fn size() -> Option<(u16, u16)> {
    use std::io::IsTerminal;
    let is_terminal = io::stdout().is_terminal();
    is_terminal.then(|| terminal::size().ok()).flatten()
}

/// What a person did.
pub enum Happened {
    /// Pressed a key, or used the mouse.
    Key(Key),
    /// Gave the terminal another size.
    Resized,
}

/// The terminal, while it is ours.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    mouse: bool,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn enter(mouse: bool) -> Result<Self> {
        give_back_on_panic();
        TAKEN.store(true, Ordering::SeqCst);
        let taken =
            take_over(mouse).and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match taken {
            Ok(terminal) => Ok(Self { terminal, mouse }),
            Err(error) => {
                give_back();
                Err(error).context("cannot use the terminal; print a frame with --once")
            }
        }
    }

    /// Draws a frame.
    ///
    /// # Errors
    /// When the terminal has gone.
    pub fn draw(&mut self, top: &mut Top, again: Again<'_>) -> Result<()> {
        let drawn = self.terminal.draw(|frame| {
            let area = frame.area();
            top.prepare(area.width, area.height, again);
            top.draw(frame.buffer_mut());
        });
        drawn.map(drop).context("cannot draw on the terminal")
    }

    /// Has the next frame drawn over whatever is there.
    ///
    /// # Errors
    /// When the terminal has gone.
    pub fn repaint(&mut self) -> Result<()> {
        self.terminal.clear().context("cannot draw on the terminal")
    }

    /// What a person does within this time; `None` when nothing.
    ///
    /// # Errors
    /// When the terminal has gone.
    pub fn next(&mut self, within: Duration) -> Result<Option<Happened>> {
        let mut within = within;
        while event::poll(within).context("cannot read from the terminal")? {
            within = Duration::ZERO;
            let event = event::read().context("cannot read from the terminal")?;
            if let Some(happened) = happened(&event) {
                return Ok(Some(happened));
            }
        }
        Ok(None)
    }

    /// Gives the terminal back, stops as the shell's job control asks for, and takes it again when
    /// called to go on.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn suspend(self) -> Result<Self> {
        let mouse = self.mouse;
        drop(self);
        signal_hook::low_level::emulate_default_handler(SIGTSTP)
            .context("cannot stop for the shell")?;
        Self::enter(mouse)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take_over(mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    if mouse {
        execute!(io::stdout(), EnableMouseCapture)?;
    }
    Ok(())
}

/// Leaves the terminal as it was found, once.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // A terminal that has gone needs nothing.
        let _ = execute!(
            io::stdout(),
            DisableMouseCapture,
            LeaveAlternateScreen,
            Show
        );
        let _ = disable_raw_mode();
    }
}

/// Restores the terminal before a panic is printed.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
    });
}

fn happened(event: &Event) -> Option<Happened> {
    match event {
        Event::Resize(..) => Some(Happened::Resized),
        Event::Key(key) if key.kind != KeyEventKind::Release => key_of(*key).map(Happened::Key),
        Event::Mouse(mouse) => {
            let key = match mouse.kind {
                MouseEventKind::Down(MouseButton::Left) => Key::Click(mouse.column, mouse.row),
                MouseEventKind::ScrollUp => Key::Wheel { down: false },
                MouseEventKind::ScrollDown => Key::Wheel { down: true },
                _ => return None,
            };
            Some(Happened::Key(key))
        }
        _ => None,
    }
}

fn key_of(key: KeyEvent) -> Option<Key> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char(letter) if control => Key::Control(letter.to_ascii_lowercase()),
        KeyCode::Char(letter) => Key::Char(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}
