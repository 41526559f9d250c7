//! Anti-entropy: what was missed of journals is made up for by comparing directories with those who own them.

pub(crate) mod answer;
pub(crate) mod round;
