//! `atoll_fuzz::site` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| atoll_fuzz::site(bytes));
