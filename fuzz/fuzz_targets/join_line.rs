//! `atoll_fuzz::join_line` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| atoll_fuzz::join_line(bytes));
