//! The state and the rules of the equations 3 to 9, for any kind of credit: page histories, and applications with their
//! threads' numbers and Sharing Matrices.
//!
//! A thread gets the lowest number that no living thread of its application has, so the matrix grows no larger than the
//! most threads alive at once (the second of the paper's two solutions, §4.4.3). The numbers of ended threads keep
//! their rows and references until they are reused: sharing by an ended thread still shows where its pages belong.
//!
//! The unit ([`crate::Ipm`]) credits the time that a page was in a TLB. The paper also compares with
//! crediting TLB misses by "the same procedure" (§5.2), and memory samples can be credited likewise:
//! both are [`Histories::credit`] with a weight for each event.
//!
//! The weight: ageing (Eq. 6) takes at least 1 off a counter of 2^`CR_aging` or more, and counters begin just below
//! that (Eq. 9). So a counter credited with 1 each time would stay at 2^`CR_aging`, and no page would ever move. An
//! event must weigh more than 2^`CR_mig`. [`IpmConfig::event_weight`] is 2^`CR_aging`, with which a node needs some
//! 2^`CR_mig` events on a page to get it.

use std::collections::BTreeSet;

use super::config::IpmConfig;
use super::page_history::{NOBODY, PageHistoryTable, insert_sharer};
use super::{Application, Notification, SharingMatrix, Thread, numa_vector};
use crate::HardwareError;
use crate::page::Page;

/// See the top of this file. Uses `cr_aging`, `cr_mig`, `sharers`, `numa_counter_bits`, `matrix_element_bits` and
/// `threads` of the configuration.
#[derive(Debug)]
pub struct Histories {
    config: IpmConfig,
    pub(super) pages: PageHistoryTable,
    /// None for an application that ended; the next one takes its place.
    applications: Vec<Option<State>>,
}

/// An application with its threads' numbers.
#[derive(Debug)]
struct State {
    matrix: SharingMatrix,
    /// Numbers given out so far: 0 to `given - 1`.
    given: u32,
    /// Numbers whose threads ended.
    ended: BTreeSet<u32>,
}

/// The result of a credit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Credited {
    /// Elements of the Sharing Matrix that were added to (Eq. 3).
    pub sharers: u64,
    /// The page should be moved (Eq. 8).
    pub notification: Option<Notification>,
}

/// A number for a new thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StartedThread {
    /// The thread.
    pub thread: Thread,
    /// Whether an ended thread had its number before. References to that thread are deleted.
    pub reused: bool,
}

impl Histories {
    /// Empty histories for a machine of this many nodes.
    ///
    /// # Errors
    /// When the configuration is wrong.
    pub fn new(config: IpmConfig, nodes: usize) -> Result<Self, HardwareError> {
        config.validate()?;
        Ok(Self {
            config,
            pages: PageHistoryTable::new(config.sharers, nodes, config.cr_aging),
            applications: Vec::new(),
        })
    }

    /// Begins to keep an application's matrix, with room for the configured number of threads.
    pub fn start_application(&mut self) -> Application {
        let state = State {
            matrix: SharingMatrix::new(self.config.threads, self.config.matrix_element_bits),
            given: 0,
            ended: BTreeSet::new(),
        };
        let vacant = self.applications.iter().position(Option::is_none);
        let place = vacant.unwrap_or(self.applications.len());
        if place == self.applications.len() {
            self.applications.push(None);
        }
        self.applications[place] = Some(state);
        Application(u32::try_from(place).expect("fewer than 2^32 applications run at once"))
    }

    /// Deletes an application's matrix and its pages' histories. Its name may be given to another.
    pub fn end_application(&mut self, application: Application) {
        self.applications[application.0 as usize] = None;
        self.pages.delete_application(application);
    }

    fn state(&self, application: Application) -> Option<&State> {
        self.applications.get(application.0 as usize)?.as_ref()
    }

    fn state_mut(&mut self, application: Application) -> Option<&mut State> {
        self.applications.get_mut(application.0 as usize)?.as_mut()
    }

    /// Gives a new thread its number (§4.4.3): the lowest that no living thread has. If an ended
    /// thread had it, that thread's row and column are reset and all references to it deleted.
    ///
    /// # Panics
    /// When the application has ended.
    pub fn start_thread(&mut self, application: Application) -> StartedThread {
        let state = self.state_mut(application);
        let state = state.expect("a thread starts while its application runs");
        let reused = state.ended.pop_first();
        let number = reused.unwrap_or(state.given);
        let thread = Thread {
            application,
            number,
        };
        let room = state.matrix.threads() as u64;
        if u64::from(number) >= room {
            // Twice the room: growth is expensive, so it should be rare.
            let threads = (2 * room).min(u64::from(u32::MAX)) as u32;
            state.matrix.grow(threads);
        }
        if reused.is_some() {
            state.matrix.reset(number);
            self.pages.delete_thread(thread);
        } else {
            state.given += 1;
        }
        StartedThread {
            thread,
            reused: reused.is_some(),
        }
    }

    /// Notes that a thread ended: its number may be given to another. Returns false if the thread
    /// was not running.
    pub fn end_thread(&mut self, thread: Thread) -> bool {
        let runs = self.is_running(thread);
        if let Some(state) = self.state_mut(thread.application).filter(|_| runs) {
            state.ended.insert(thread.number);
        }
        runs
    }

    /// Whether a thread has started and not ended.
    pub fn is_running(&self, thread: Thread) -> bool {
        self.state(thread.application).is_some_and(|state| {
            thread.number < state.given && !state.ended.contains(&thread.number)
        })
    }

    /// Credits a page's use to the thread and to the node that it ran on (Eq. 3 to 7), and says
    /// whether the page should be moved to that node (Eq. 8). `home` returns the node that the page
    /// is on, if any. Pass no thread if its number was given to another.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn credit(
        &mut self,
        page: Page,
        application: Application,
        thread: Option<u32>,
        node: usize,
        weight: u64,
        home: impl FnOnce(Page) -> Option<usize>,
    ) -> Credited {
        let config = &self.config;
        let history = self.pages.entry(page, application);
        let mut sharers = 0;
        if let Some(thread) = thread
            && history.application == application
            && let Some(Some(state)) = self.applications.get_mut(application.0 as usize)
        {
            for &sharer in history.sharers.iter().filter(|&&sharer| sharer != NOBODY) {
                state.matrix.add(thread, sharer, weight);
                sharers += 1;
            }
            insert_sharer(history.sharers, thread);
        }
        numa_vector::age(history.numa, config.cr_aging);
        let most = u32::MAX >> (32 - config.numa_counter_bits);
        numa_vector::add(history.numa, node, weight, most);
        let moves =
            |&from: &usize| numa_vector::should_migrate(history.numa, node, from, config.cr_mig);
        Credited {
            sharers,
            notification: home(page).filter(moves).map(|from| Notification {
                page,
                from,
                to: node,
            }),
        }
    }

    /// The Sharing Matrix of an application; None when it has ended.
    pub fn matrix(&self, application: Application) -> Option<&SharingMatrix> {
        Some(&self.state(application)?.matrix)
    }

    /// The Sharing Matrix of an application, to age it; None when it has ended.
    pub fn matrix_mut(&mut self, application: Application) -> Option<&mut SharingMatrix> {
        Some(&mut self.state_mut(application)?.matrix)
    }

    /// Whether anything has been credited to a page.
    pub fn know(&self, page: Page) -> bool {
        self.pages.has(page)
    }

    /// Their configuration.
    pub fn config(&self) -> &IpmConfig {
        &self.config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How many consecutive events of a node it takes until a page on another node should move;
    /// `None` if 10,000 do not suffice.
    fn events_until_it_moves(config: IpmConfig, weight: u64) -> Option<usize> {
        let mut histories = Histories::new(config, 2).unwrap();
        let application = histories.start_application();
        let mut credit = || {
            let page = Page::new(1);
            let credited = histories.credit(page, application, None, 1, weight, |_| Some(0));
            credited.notification.is_some()
        };
        (1..=10_000).find(|_| credit())
    }

    #[test]
    fn events_that_weigh_1_never_move_a_page_and_those_of_the_units_weight_do() {
        let config = IpmConfig::of_paper();
        assert_eq!(events_until_it_moves(config, 1), None);
        assert_eq!(config.event_weight(), 128);
        // 127 + 128 - 1 + 128 - 2 + 128 = 508 = 127 << 2; the fourth passes it.
        assert_eq!(events_until_it_moves(config, 128), Some(4));
    }

    #[test]
    fn an_application_that_ends_leaves_nothing() {
        let mut histories = Histories::new(IpmConfig::of_paper(), 2).unwrap();
        let application = histories.start_application();
        let threads = [(); 2].map(|()| histories.start_thread(application).thread);
        for thread in threads {
            let number = Some(thread.number);
            histories.credit(Page::new(7), application, number, 0, 5, |_| None);
        }
        assert_eq!(histories.pages.get(Page::new(7)).unwrap().0, [1, 0]);
        assert_eq!(histories.matrix(application).unwrap().between(0, 1), 5);
        histories.end_application(application);
        assert_eq!(
            (histories.pages.len(), histories.matrix(application)),
            (0, None)
        );
    }

    proptest! {
        /// For any registers, events of the configuration's own weight move a page that its home
        /// does not use.
        #[test]
        fn the_units_weight_suffices(cr_aging in 1u32..14, cr_mig in 0u32..4) {
            prop_assume!(cr_mig < cr_aging);
            let config = IpmConfig {
                cr_aging,
                cr_mig,
                numa_counter_bits: 32,
                ..IpmConfig::of_paper()
            };
            prop_assert!(events_until_it_moves(config, config.event_weight()).is_some());
        }
    }
}
