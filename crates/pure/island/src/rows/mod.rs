//! What happens to rows, whoever decides it: functions on a decision under construction. None of them decides, sends or
//! waits.

mod staged;

pub(crate) use staged::staged_dir;
