//! `atoll_fuzz::row` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| atoll_fuzz::row(bytes));
