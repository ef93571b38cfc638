/// The bound on turns of a run; 0 = none. Tested where a further turn would begin, so a final answer in the last
/// allowed turn is a normal end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnLimit {
    pub max_turns: u32,
}

/// Limits below this give no warning.
const WARN_FROM: u32 = 5;

impl TurnLimit {
    /// Whether a turn may follow `done` finished ones.
    pub fn allows_after(self, done: u32) -> bool {
        self.max_turns == 0 || done < self.max_turns
    }

    /// Whether the one warning is due before turn `next`: at 80 % of the limit, before turn ⌈0.8 × limit⌉ + 1.
    pub fn warns_before(self, next: u32) -> bool {
        let used = u64::from(self.max_turns) * 8;
        self.max_turns >= WARN_FROM && u64::from(next) == used.div_ceil(10) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::TurnLimit;

    #[test]
    fn the_warning_comes_once_at_eighty_percent_and_only_from_five_on() {
        for (max_turns, expected) in [(0, None), (4, None), (5, Some(5)), (10, Some(9)), (7, Some(7)), (200, Some(161))]
        {
            let limit = TurnLimit { max_turns };
            let warned: Vec<u32> = (1..=210).filter(|next| limit.warns_before(*next)).collect();
            assert_eq!(warned, expected.into_iter().collect::<Vec<_>>(), "limit {max_turns}");
        }
    }

    #[test]
    fn zero_means_no_limit() {
        assert!(TurnLimit { max_turns: 0 }.allows_after(u32::MAX));
        assert!(TurnLimit { max_turns: 2 }.allows_after(1));
        assert!(!TurnLimit { max_turns: 2 }.allows_after(2));
    }
}
