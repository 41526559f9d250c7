//! tmp
pub(crate) enum Trouble { None, Deaths, Partitions }
pub(crate) fn run(_: &mut crate::scenario::Run, _: Trouble) -> Result<(), crate::Failure> { Ok(()) }
