//! What each process loses where its threads are.

use super::{Picture, SEARCHED};

impl Picture {
    /// Cores that the threads of each process lose where they are, in the order of the processes: the mean over the
    /// draws that a search uses.
    pub fn lost_by_process(&self) -> Vec<f64> {
        let cpus = self.now();
        let in_domain = self.wanted_in(&cpus);
        let mut lost = vec![0.0; self.processes.len()];
        for draw in 0..SEARCHED {
            let mut speeds = self.speeds_now.iter();
            for (at, (load, &cpu)) in self.threads.iter().zip(&cpus).enumerate() {
                let Some(seat) = self.seat(cpu) else {
                    continue;
                };
                let had = load.wanted * self.cores.share(seat.domain, in_domain[seat.domain]);
                // Only threads of which something is known are in the equations.
                let useful = match load.is_known().then(|| speeds.next()).flatten() {
                    Some(&place) => {
                        let alone_ns = self.demands[draw][self.kinds.of[at]].alone_ns;
                        had * (alone_ns / self.starts[draw].speeds[place].ns).min(1.0)
                    }
                    None => had,
                };
                lost[load.process] += (load.wanted - useful) / SEARCHED as f64;
            }
        }
        lost
    }
}
