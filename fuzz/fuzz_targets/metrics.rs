//! `atoll_fuzz::metrics` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| atoll_fuzz::metrics(bytes));
