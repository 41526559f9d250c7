//! The checker against all orders of small histories, by a tree that shares nothing with it.

mod orders;
mod random;
mod tree;

use atoll_history::{Verdict, check};

/// How many; `ATOLL_HISTORIES` says another number, `ATOLL_SEED` where to begin.
const HISTORIES: u64 = 100_000;

#[test]
fn the_checker_and_all_orders_agree() {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let first = number("ATOLL_SEED", 1);
    let (mut fit, mut broken) = (0, 0);
    for seed in first..first + number("ATOLL_HISTORIES", HISTORIES) {
        let history = random::history(seed);
        let verdict = check(&history);
        let expected = orders::fits(&history);
        let agree = match &verdict {
            Verdict::Fits { .. } => expected,
            Verdict::Broken(_) => !expected,
            Verdict::Undecided(_) => false,
        };
        if !agree {
            let mut text = Vec::new();
            history.write(&mut text).unwrap();
            panic!(
                "ATOLL_SEED={seed}: some order fits: {expected}; but\n{verdict}\n{}",
                String::from_utf8_lossy(&text)
            );
        }
        if expected { fit += 1 } else { broken += 1 }
    }
    println!("{fit} fit, {broken} do not");
    assert!(broken > 0 && fit > 0);
}
