//! XDR (RFC 4506): a reader over bytes that came from outside, and a writer. A length is compared with what is
//! left before anything is taken; nothing is allocated for what is read.

use bytes::Bytes;

/// The bytes are no value of the type that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Garbage;

/// Reads values one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    left: Bytes,
}

impl Reader {
    pub(crate) const fn new(left: Bytes) -> Self {
        Self { left }
    }

    /// The next `len` bytes, without the padding behind them: a slice of what came, not a copy.
    fn take(&mut self, len: usize) -> Result<Bytes, Garbage> {
        let padded = len.checked_next_multiple_of(4).ok_or(Garbage)?;
        if padded > self.left.len() {
            return Err(Garbage);
        }
        let mut taken = self.left.split_to(padded);
        taken.truncate(len);
        Ok(taken)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Garbage> {
        let raw = self.take(4)?;
        Ok(u32::from_be_bytes(raw[..].try_into().map_err(|_| Garbage)?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Garbage> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Garbage> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// Whether everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Bytes with their length before them, at most `max`.
    pub(crate) fn opaque(&mut self, max: usize) -> Result<Bytes, Garbage> {
        let len = self.u32()? as usize;
        if len > max { Err(Garbage) } else { self.take(len) }
    }
}

/// Writes values one after the other.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn flag(&mut self, value: bool) -> &mut Self {
        self.u32(u32::from(value))
    }

    pub(crate) fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len() + padding(bytes.len()), 0);
        self
    }

    pub(crate) fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32).fixed(bytes)
    }
}

/// Bytes that follow `len` bytes up to the next multiple of four.
pub(crate) const fn padding(len: usize) -> usize {
    (4 - len % 4) % 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_four_gigabytes_is_garbage_and_takes_nothing() {
        let mut reader = Reader::new(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]));
        assert_eq!(reader.opaque(usize::MAX), Err(Garbage));
        assert_eq!(reader.u32(), Ok(0x0102_0304));
        assert_eq!(reader.u32(), Err(Garbage));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut writer = Writer::default();
        writer.opaque(b"hello").u64(7).flag(true).fixed(&[9; 8]);
        assert_eq!(writer.0.len(), 12 + 8 + 4 + 8);
        let mut reader = Reader::new(writer.0.into());
        assert_eq!(&reader.opaque(5).unwrap()[..], b"hello");
        assert_eq!((reader.u64(), reader.flag()), (Ok(7), Ok(true)));
        assert_eq!(reader.u64(), Ok(0x0909_0909_0909_0909));
        assert!(reader.is_empty());
    }
}
