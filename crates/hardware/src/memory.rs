//! Which node a physical address belongs to.

use crate::HardwareError;

/// A range of physical addresses on one node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// The node.
    pub node: usize,
}

/// The machine's physical memory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Memory {
    spans: Vec<Span>,
}

impl Memory {
    /// A map of these spans, in any order; empty ones are left out.
    ///
    /// # Errors
    /// When a span is backwards, two overlap, or none holds anything.
    pub fn new(spans: impl IntoIterator<Item = Span>) -> Result<Self, HardwareError> {
        let mut spans: Vec<Span> = spans
            .into_iter()
            .filter(|span| span.start != span.end)
            .collect();
        if let Some(&span) = spans.iter().find(|span| span.end < span.start) {
            return Err(HardwareError::Backwards(span));
        }
        spans.sort_by_key(|span| span.start);
        if let Some(pair) = spans.windows(2).find(|pair| pair[0].end > pair[1].start) {
            return Err(HardwareError::Overlap(pair[0], pair[1]));
        }
        match spans.is_empty() {
            true => Err(HardwareError::NoMemory),
            false => Ok(Self { spans }),
        }
    }

    /// Node that holds this address, or None where there is no memory.
    #[inline]
    pub fn node_of(&self, address: u64) -> Option<usize> {
        // Few spans in practice: a walk is faster than a search up to some sixteen of them.
        if self.spans.len() <= 16 {
            let span = self.spans.iter().find(|span| address < span.end)?;
            return (address >= span.start).then_some(span.node);
        }
        let after = self.spans.partition_point(|span| span.end <= address);
        let span = self.spans.get(after)?;
        (address >= span.start).then_some(span.node)
    }

    /// One past the highest address.
    pub fn end(&self) -> u64 {
        self.spans.last().map_or(0, |span| span.end)
    }

    /// Highest node number plus one.
    pub fn nodes(&self) -> usize {
        self.spans
            .iter()
            .map(|span| span.node + 1)
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(count: usize) -> Vec<Span> {
        (0..count)
            .map(|i| Span {
                start: i as u64 * 100,
                end: i as u64 * 100 + 50,
                node: i % 3,
            })
            .collect()
    }

    #[test]
    fn addresses_belong_to_the_span_around_them() {
        for count in [1, 3, 16, 17, 100] {
            let memory = Memory::new(spans(count)).unwrap();
            for i in 0..count {
                let start = i as u64 * 100;
                assert_eq!(memory.node_of(start), Some(i % 3));
                assert_eq!(memory.node_of(start + 49), Some(i % 3));
                assert_eq!(memory.node_of(start + 50), None);
            }
            assert_eq!(memory.node_of(count as u64 * 100), None);
            assert_eq!(memory.end(), count as u64 * 100 - 50);
        }
    }

    #[test]
    fn maps_that_lie_are_refused() {
        let span = |start, end| Span {
            start,
            end,
            node: 0,
        };
        assert_eq!(Memory::new([]), Err(HardwareError::NoMemory));
        assert_eq!(Memory::new([span(5, 5)]), Err(HardwareError::NoMemory));
        assert!(matches!(
            Memory::new([span(5, 4)]),
            Err(HardwareError::Backwards(_))
        ));
        let overlap = Memory::new([span(10, 20), span(0, 11)]);
        assert!(matches!(overlap, Err(HardwareError::Overlap(..))));
    }
}
