//! The order of names in listings.

/// Smallest cookie of a name; frontends use the ones below for "." and "..".
pub const COOKIE_MIN: u64 = 16;

/// A name's place in listings: a hash keyed with the volume's seed, below 2^63.
///
/// It is a function of the name alone, so a listing goes on at the right place after restarts, on
/// another mount, and however the directory has changed. Two names of one directory share a cookie
/// with a probability of 2^-63 for each pair; a listing never ends between such names.
pub fn cookie_of(seed: u64, name: &[u8]) -> u64 {
    // SipHash-2-4 keyed by the seed, so that nobody can make names collide.
    let h = siphash24(seed, seed.rotate_left(32) ^ 0x6174_6f6c_6c21, name) >> 1;
    h.max(COOKIE_MIN)
}

/// SipHash-2-4 of `bytes` under the key `k0`, `k1`.
pub fn siphash24(k0: u64, k1: u64, bytes: &[u8]) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    fn rounds(v: &mut [u64; 4], n: u32) {
        for _ in 0..n {
            v[0] = v[0].wrapping_add(v[1]);
            v[1] = v[1].rotate_left(13) ^ v[0];
            v[0] = v[0].rotate_left(32);
            v[2] = v[2].wrapping_add(v[3]);
            v[3] = v[3].rotate_left(16) ^ v[2];
            v[0] = v[0].wrapping_add(v[3]);
            v[3] = v[3].rotate_left(21) ^ v[0];
            v[2] = v[2].wrapping_add(v[1]);
            v[1] = v[1].rotate_left(17) ^ v[2];
            v[2] = v[2].rotate_left(32);
        }
    }
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let m = u64::from_le_bytes(chunk.try_into().expect("chunks of 8"));
        v[3] ^= m;
        rounds(&mut v, 2);
        v[0] ^= m;
    }
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    last[7] = bytes.len() as u8;
    let m = u64::from_le_bytes(last);
    v[3] ^= m;
    rounds(&mut v, 2);
    v[0] ^= m;
    v[2] ^= 0xff;
    rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siphash_is_the_published_one() {
        // The reference vector of SipHash-2-4: key 00..0f, message 00..0e.
        let k0 = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7]);
        let k1 = u64::from_le_bytes([8, 9, 10, 11, 12, 13, 14, 15]);
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(siphash24(k0, k1, &message), 0xa129_ca61_49be_45e5);
    }
}
