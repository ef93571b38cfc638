//! The bounds of a run: turns, cost, and calls that bring nothing new.
//!
//! Keeps true: a bound of zero is none; a bound is tested where a further turn would begin, so a final answer in the
//! last allowed turn is a normal end.
//!
//! Must not know: how the numbers are counted, who is warned.

use serde_json::{Map, Value};

use crate::model::{Reason, ToolResultMessage};

/// The bound on turns of a run; 0 = none. Tested where a further turn would begin, so a final answer in the last
/// allowed turn is a normal end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnLimit {
    pub max_turns: u32,
}

/// Limits below this give no warning.
const WARN_FROM: u32 = 5;

/// The part of a limit on cost at which a warning is due.
const WARN_PART: f64 = 0.8;

impl TurnLimit {
    /// Whether a turn may follow `done` finished ones.
    pub fn allows_after(self, done: u32) -> bool {
        self.max_turns == 0 || done < self.max_turns
    }

    /// Whether the one warning is due before turn `next`: at 80 % of the limit, before turn ⌈0.8 × limit⌉ + 1.
    pub fn warns_before(self, next: u32) -> bool {
        next.checked_sub(1).is_some_and(|done| warn_at(self.max_turns) == Some(done))
    }
}

/// The number at which the warning of a limit is due: ⌈0.8 × limit⌉; `None` for one that gives none.
fn warn_at(limit: u32) -> Option<u32> {
    let used = (u64::from(limit) * 8).div_ceil(10);
    u32::try_from(used).ok().filter(|_| limit >= WARN_FROM)
}

/// The bounds of a run that outlives a process; the numbers they are held against are kept with the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Finished turns; 0 = no bound.
    pub max_turns: u32,
    /// USD. `None`, or nothing above zero, = no bound.
    pub max_cost: Option<f64>,
    /// Equal results in a row, as [`repeats`] counts them; 0 = no bound.
    pub max_repeats: u32,
}

impl Budget {
    /// The bound that forbids a further turn, the first in the order of the fields.
    pub fn exceeded(&self, turns: u32, cost: f64, repeats: u32) -> Option<Reason> {
        if !(TurnLimit { max_turns: self.max_turns }).allows_after(turns) {
            return Some(Reason::MaxTurns);
        }
        if self.cost_limit().is_some_and(|limit| cost >= limit) {
            return Some(Reason::MaxCost);
        }
        (self.max_repeats > 0 && repeats >= self.max_repeats).then_some(Reason::MaxRepeats)
    }

    /// The bounds of which 80 % are used and which are not reached yet, in the order of the fields. Bounds on turns and
    /// repeats below 5 give no warning. It holds from there on, so whoever tells it remembers having told.
    pub fn warns(&self, turns: u32, cost: f64, repeats: u32) -> impl Iterator<Item = Reason> + use<> {
        let near = |limit: u32, used: u32| used < limit && warn_at(limit).is_some_and(|from| used >= from);
        let near_cost = self.cost_limit().is_some_and(|limit| cost >= WARN_PART * limit && cost < limit);
        [
            near(self.max_turns, turns).then_some(Reason::MaxTurns),
            near_cost.then_some(Reason::MaxCost),
            near(self.max_repeats, repeats).then_some(Reason::MaxRepeats),
        ]
        .into_iter()
        .flatten()
    }

    fn cost_limit(&self) -> Option<f64> {
        self.max_cost.filter(|limit| *limit > 0.0)
    }
}

/// How many of the newest results in a row are equal to the newest one in tool, arguments, content and failure; 0 without
/// results. Each comes with the arguments of its call as the model wrote them; the order of their keys does not matter.
pub fn repeats<'a>(results_newest_first: impl Iterator<Item = (&'a ToolResultMessage, &'a Map<String, Value>)>) -> u32 {
    let mut newest = None;
    let mut count = 0_u32;
    for (result, args) in results_newest_first {
        let (first, first_args) = *newest.get_or_insert((result, args));
        let same = result.tool_name == first.tool_name
            && result.is_error == first.is_error
            && args == first_args
            && result.content == first.content;
        if !same {
            break;
        }
        count = count.saturating_add(1);
    }
    count
}

#[cfg(test)]
mod tests {
    //! Case numbers are those of `engine.md`.

    use serde_json::{Map, Value, json};

    use super::{Budget, TurnLimit, repeats};
    use crate::model::{Content, Reason, ToolResultMessage};

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

    #[test]
    fn a_budget_is_spent_at_its_first_bound_that_is_reached() {
        use Reason::{MaxCost, MaxRepeats, MaxTurns};
        let budget = |max_turns, max_cost, max_repeats| Budget { max_turns, max_cost, max_repeats };
        let rows = [
            (budget(0, None, 0), (u32::MAX, f64::MAX, u32::MAX), None),
            (budget(0, Some(0.0), 0), (9, 9.0, 9), None),
            (budget(0, Some(-1.0), 0), (9, 9.0, 9), None),
            (budget(0, Some(f64::NAN), 0), (9, 9.0, 9), None),
            // case 110
            (budget(1, None, 0), (0, 0.0, 0), None),
            (budget(1, None, 0), (1, 0.0, 0), Some(MaxTurns)),
            (budget(2, None, 0), (1, 0.0, 0), None),
            // case 111: the bound of the process that goes on counts
            (budget(5, None, 0), (2, 0.0, 0), None),
            // case 112
            (budget(0, Some(0.01), 0), (1, 0.02, 0), Some(MaxCost)),
            (budget(0, Some(0.01), 0), (1, 0.01, 0), Some(MaxCost)),
            (budget(0, Some(0.01), 0), (1, 0.009, 0), None),
            // case 113
            (budget(0, None, 3), (2, 0.0, 2), None),
            (budget(0, None, 3), (3, 0.0, 3), Some(MaxRepeats)),
            (budget(3, Some(1.0), 3), (3, 1.0, 3), Some(MaxTurns)),
        ];
        for (budget, (turns, cost, repeats), expected) in rows {
            assert_eq!(budget.exceeded(turns, cost, repeats), expected, "{budget:?}, {turns}, {cost}, {repeats}");
        }
    }

    #[test]
    fn a_budget_warns_between_eighty_percent_and_its_bound() {
        use Reason::{MaxCost, MaxRepeats, MaxTurns};
        let budget = Budget { max_turns: 10, max_cost: Some(1.0), max_repeats: 6 };
        let rows: [(u32, f64, u32, &[Reason]); 8] = [
            (7, 0.79, 4, &[]),
            (8, 0.0, 0, &[MaxTurns]),
            (9, 0.0, 0, &[MaxTurns]),
            (10, 0.0, 0, &[]),
            (0, 0.8, 0, &[MaxCost]),
            (0, 1.0, 0, &[]),
            (0, 0.0, 5, &[MaxRepeats]),
            (8, 0.9, 5, &[MaxTurns, MaxCost, MaxRepeats]),
        ];
        for (turns, cost, repeats, expected) in rows {
            let warned: Vec<Reason> = budget.warns(turns, cost, repeats).collect();
            assert_eq!(warned, expected, "{turns} turns, {cost} USD, {repeats} repeats");
        }
        let small = Budget { max_turns: 4, max_cost: None, max_repeats: 4 };
        assert!((0..6).all(|used| small.warns(used, 9.0, used).next().is_none()));
        assert_eq!(Budget::default().warns(u32::MAX, f64::MAX, u32::MAX).next(), None);
    }

    /// A tool, the arguments of its call, the text of its result, and whether it failed.
    type Row<'a> = (&'a str, Value, &'a str, bool);

    #[test]
    fn case_113_equal_results_in_a_row_are_counted_from_the_newest() {
        let result = |tool: &str, text: &str, is_error: bool| ToolResultMessage {
            tool_call_id: format!("{tool}{text}"),
            tool_name: tool.to_owned(),
            content: vec![Content::text(text)],
            details: None,
            is_error,
            usage: None,
            duration_ms: None,
            timestamp: 0,
            extra: Map::new(),
        };
        let same: Row<'_> = ("echo", json!({"v": "1", "n": {"a": 1, "b": [2]}}), "1", false);
        let turned = ("echo", json!({"n": {"b": [2], "a": 1}, "v": "1"}), "1", false);
        let rows: [(Vec<Row<'_>>, u32); 9] = [
            (vec![], 0),
            (vec![same.clone()], 1),
            (vec![same.clone(), turned, same.clone()], 3),
            (vec![same.clone(), ("list", same.1.clone(), "1", false), same.clone()], 1),
            (vec![same.clone(), same.clone(), ("echo", json!({"v": "2"}), "1", false)], 2),
            (vec![same.clone(), same.clone(), ("echo", same.1.clone(), "2", false)], 2),
            (vec![same.clone(), same.clone(), ("echo", same.1.clone(), "1", true)], 2),
            (vec![("echo", json!({"l": [1, 2]}), "1", false), ("echo", json!({"l": [2, 1]}), "1", false)], 1),
            // the text changes each time
            (vec![("echo", json!({}), "3", false), ("echo", json!({}), "2", false)], 1),
        ];
        for (at, (calls, expected)) in rows.into_iter().enumerate() {
            let made: Vec<(ToolResultMessage, Map<String, Value>)> = calls
                .into_iter()
                .map(|(tool, args, text, is_error)| (result(tool, text, is_error), args.as_object().unwrap().clone()))
                .collect();
            assert_eq!(repeats(made.iter().map(|(result, args)| (result, args))), expected, "row {at}");
        }
    }
}
