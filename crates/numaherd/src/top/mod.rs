//! `numaherd top`: shows a run on a terminal: from a ledger, from the herd that runs here, or from this machine
//! itself.
//!
//! [`numaherd_show::top`] draws everything from ledger lines alone. Here are the sources of lines ([`source`]), the
//! terminal ([`screen`]), and the loop between them: take lines, handle keys, draw when something has changed.

mod screen;
mod source;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use numaherd_quantity::nanoseconds;
use numaherd_show::top::{Colors, Effect, Look, Tab, Timeline, Top, svg, text};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli;
use crate::cli::TopView as View;
use crate::exit::ended;
use crate::print;
use screen::{Happened, Screen};
use source::{Polled, Source};

/// How long lines are taken before keys are handled.
const TAKING: Duration = Duration::from_millis(10);

/// How often a frame is drawn at most.
const FRAME: Duration = Duration::from_millis(33);

/// How long to wait for a key before looking for lines again.
const WAITING: Duration = Duration::from_millis(100);

/// Columns and rows of a frame that is printed where there is no terminal.
const USUAL_SIZE: (u16, u16) = (120, 40);

/// Shows a run until told to stop, or prints one frame.
///
/// # Errors
/// The source cannot be read, standard output is not a terminal, or the terminal refuses.
pub fn top(options: &cli::Top) -> Result<ExitCode> {
    let mut source = Source::of(options)?;
    let is_frame = options.once || options.svg.is_some();
    let timeline = if source.is_file() {
        Timeline::new()
    } else {
        Timeline::keeping()
    };
    let look = look(options);
    let mut top = Top::new(timeline, source.name(), look);
    if source.grows() {
        top = top.growing();
    }
    chosen(options, &mut top)?;
    if is_frame {
        one_frame(options, &mut top, &mut source)?;
        return source.whole().map(|()| ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() {
        return Err(ended!(
            Usage,
            "standard output is not a terminal: run `numaherd top` on one, or print a frame with --once"
        ));
    }
    if let Some(time) = options.at {
        source.take_all(&mut top);
        top.show_time(nanoseconds(time));
    }
    let signal = on_a_terminal(&mut top, &mut source, options.mouse)?;
    if let Some(signal) = signal {
        // The terminal is restored: end as the sender of the signal expects.
        signal_hook::low_level::emulate_default_handler(signal)
            .context("cannot end by the signal that asked for it")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the command line chose to see.
fn chosen(options: &cli::Top, top: &mut Top) -> Result<()> {
    top.show_tab(match options.view {
        View::Processes => Tab::Processes,
        View::Threads => Tab::Threads,
        View::Heat => Tab::Heat,
        View::Decisions => Tab::Decisions,
    });
    if let Some(column) = &options.sort
        && !top.sort_by_title(column)
    {
        return Err(ended!(
            Usage,
            "there is no column {column:?}; the columns are {}",
            top.column_titles().join(", ")
        ));
    }
    if let Some(filter) = &options.filter {
        top.filter(filter);
    }
    Ok(())
}

/// The look of the display, according to the terminal's environment.
fn look(options: &cli::Top) -> Look {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let terminal = variable("TERM");
    let deep = terminal.contains("256") || !variable("COLORTERM").is_empty();
    let colors = if !variable("NO_COLOR").is_empty() || terminal == "dumb" {
        Colors::None
    } else if deep || options.svg.is_some() {
        Colors::Many
    } else {
        Colors::Sixteen
    };
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable);
    let locale = locale.iter().find(|value| !value.is_empty());
    // Without a locale (in a service or a test), text is UTF-8.
    let utf8 = locale.is_none_or(|value| {
        let value = value.to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    });
    Look {
        colors,
        ascii: options.ascii || !utf8,
    }
}

/// Prints or draws one frame.
fn one_frame(options: &cli::Top, top: &mut Top, source: &mut Source) -> Result<()> {
    source.take_a_snapshot(top)?;
    if let Some(time) = options.at {
        top.show_time(nanoseconds(time));
    }
    let (columns, rows) = screen::size().unwrap_or(USUAL_SIZE);
    let columns = options.width.unwrap_or(columns);
    let rows = options.height.unwrap_or(rows);
    let frame = top.frame(columns, rows, &mut |place| source.again(place));
    if let Some(path) = &options.svg {
        let title = format!("numaherd top of {}", source.name());
        let picture = svg(&frame, &title);
        print::file(path, &picture)?;
    }
    if options.once {
        print::out(&text(&frame))?;
    }
    Ok(())
}

/// Shows a run until a key or a signal ends it; the signal.
fn on_a_terminal(top: &mut Top, source: &mut Source, mouse: bool) -> Result<Option<i32>> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        let value = usize::try_from(number).unwrap_or_default();
        signal_hook::flag::register_usize(number, signal.clone(), value)
            .context("cannot watch for signals")?;
    }
    let mut screen = Screen::enter(mouse)?;
    let mut drawn: Option<Instant> = None;
    let mut ticked = Instant::now();
    let mut stale = true;
    loop {
        let polled = source.poll(top, TAKING);
        stale |= polled != Polled::Nothing;
        let now = Instant::now();
        stale |= top.tick((now - ticked).as_secs_f64());
        ticked = now;
        let since = drawn.map(|drawn| now - drawn);
        if stale && since.is_none_or(|since| since >= FRAME) {
            screen.draw(top, &mut |place| source.again(place))?;
            drawn = Some(Instant::now());
            stale = false;
        }
        let wait = match polled {
            Polled::More => Duration::ZERO,
            _ if stale || top.is_playing() => FRAME,
            _ => WAITING,
        };
        let mut wait = Some(wait);
        while let Some(happened) = screen.next(wait.take().unwrap_or_default())? {
            let effect = match happened {
                Happened::Key(key) => top.key(key),
                Happened::Resized => Effect::Redraw,
            };
            match effect {
                Effect::Nothing => {}
                Effect::Redraw => {
                    stale = true;
                    drawn = None;
                }
                Effect::Repaint => {
                    screen.repaint()?;
                    stale = true;
                }
                Effect::Suspend => {
                    screen = screen.suspend()?;
                    stale = true;
                }
                Effect::Quit => return Ok(None),
            }
        }
        match signal.load(Ordering::Relaxed) {
            0 => {}
            number => return Ok(i32::try_from(number).ok()),
        }
    }
}
