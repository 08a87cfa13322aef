//! Applications with their threads' numbers and Sharing Matrices (IPM §4.4.2, §4.4.3, §4.5.1).
//!
//! A thread gets the lowest number that no living thread of its application has, so that the matrix
//! stays as small as the application is wide (the second of the paper's two solutions). The numbers
//! of ended threads keep their rows and references until they are given out again: what an ended
//! thread shared still says where its pages belong.

use std::collections::BTreeSet;

use super::{Application, SharingMatrix, StartedThread, Thread};

#[derive(Debug)]
pub(super) struct Applications {
    /// None for one that ended; its place is given to the next.
    list: Vec<Option<State>>,
    threads: u32,
    element_bits: u32,
}

#[derive(Debug)]
struct State {
    matrix: SharingMatrix,
    /// Numbers given out so far: 0 to this less 1.
    given: u32,
    /// Of these, those whose threads ended.
    ended: BTreeSet<u32>,
}

impl Applications {
    pub(super) fn new(threads: u32, element_bits: u32) -> Self {
        Self {
            list: Vec::new(),
            threads,
            element_bits,
        }
    }

    pub(super) fn start(&mut self) -> Application {
        let state = State {
            matrix: SharingMatrix::new(self.threads, self.element_bits),
            given: 0,
            ended: BTreeSet::new(),
        };
        let vacant = self.list.iter().position(Option::is_none);
        let place = vacant.unwrap_or(self.list.len());
        if place == self.list.len() {
            self.list.push(None);
        }
        self.list[place] = Some(state);
        Application(u32::try_from(place).expect("fewer than 2^32 applications run at once"))
    }

    pub(super) fn end(&mut self, application: Application) {
        self.list[application.0 as usize] = None;
    }

    pub(super) fn matrix(&self, application: Application) -> Option<&SharingMatrix> {
        let state = self.list.get(application.0 as usize)?.as_ref()?;
        Some(&state.matrix)
    }

    pub(super) fn matrix_mut(&mut self, application: Application) -> Option<&mut SharingMatrix> {
        Some(&mut self.state(application)?.matrix)
    }

    fn state(&mut self, application: Application) -> Option<&mut State> {
        self.list.get_mut(application.0 as usize)?.as_mut()
    }

    /// Gives a new thread its number, with an empty row and column. None when the application ended.
    pub(super) fn start_thread(&mut self, application: Application) -> Option<StartedThread> {
        let state = self.state(application)?;
        let reused = state.ended.pop_first();
        let number = reused.unwrap_or(state.given);
        if reused.is_some() {
            state.matrix.reset(number);
        } else {
            state.given += 1;
        }
        let room = state.matrix.threads() as u64;
        let grown = u64::from(number) >= room;
        if grown {
            // Twice the room: growth is expensive, so it should be rare.
            let threads = (2 * room).min(u64::from(u32::MAX)) as u32;
            state.matrix.grow(threads);
        }
        let thread = Thread {
            application,
            number,
        };
        Some(StartedThread {
            thread,
            reused: reused.is_some(),
            grown,
        })
    }

    /// Notes that a thread ended. False when it was not running.
    pub(super) fn end_thread(&mut self, thread: Thread) -> bool {
        self.state(thread.application)
            .is_some_and(|state| thread.number < state.given && state.ended.insert(thread.number))
    }

    /// Whether a thread was started and has not ended.
    pub(super) fn is_running(&self, thread: Thread) -> bool {
        let state = self.list.get(thread.application.0 as usize);
        state.and_then(Option::as_ref).is_some_and(|state| {
            thread.number < state.given && !state.ended.contains(&thread.number)
        })
    }

    /// Numbers of the running threads, ascending.
    pub(super) fn running(&self, application: Application) -> Vec<Thread> {
        let state = self.list.get(application.0 as usize);
        let given = state
            .and_then(Option::as_ref)
            .map_or(0, |state| state.given);
        let thread = |number| Thread {
            application,
            number,
        };
        (0..given)
            .map(thread)
            .filter(|&thread| self.is_running(thread))
            .collect()
    }
}
