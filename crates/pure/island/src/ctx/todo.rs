//! The island's next steps: in order, each with everything that follows from it.

use super::request::Next;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Todo {
    /// Steps that follow from the present one, in order.
    pushed: Vec<Next>,
    /// Steps after those. The last one is the next.
    behind: Vec<Next>,
}

impl Todo {
    /// Adds a step for when the present one is done.
    pub(crate) fn push(&mut self, next: Next) {
        self.pushed.push(next);
    }

    /// The next step. Steps that were pushed since the last call come before all earlier ones.
    pub(crate) fn pop(&mut self) -> Option<Next> {
        self.behind.extend(self.pushed.drain(..).rev());
        self.behind.pop()
    }

    /// Nothing is left.
    pub(crate) const fn is_empty(&self) -> bool {
        self.pushed.is_empty() && self.behind.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Ino;

    #[test]
    fn what_follows_from_something_comes_before_what_was_to_follow_it() {
        let mut todo = Todo::default();
        let push = |todo: &mut Todo, n| todo.push(Next::Turn(Ino(n)));
        push(&mut todo, 1);
        push(&mut todo, 2);
        let mut order = Vec::new();
        while let Some(next) = todo.pop() {
            let Next::Turn(ino) = next else { unreachable!("only turns were pushed") };
            order.push(ino.0);
            if ino == Ino(1) {
                push(&mut todo, 11);
                push(&mut todo, 12);
            }
        }
        assert_eq!(order, [1, 11, 12, 2]);
        assert!(todo.is_empty());
    }
}
