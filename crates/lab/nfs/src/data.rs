//! Reading, writing and committing bytes of files.

use atoll_core::Ino;
use atoll_posix::{Answer, Caller, Errno, Whence};
use bytes::Bytes;
use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::Opaque;

use crate::files::{NfsFiles, Outcome, locked};
use crate::unstable::{Written, lost};

/// How often bytes are written again before the server is given up: it loses them faster than it commits.
const REWRITES_MAX: usize = 100;

impl NfsFiles {
    pub(crate) fn readlink(&self, caller: &Caller, ino: Ino) -> Outcome {
        let args = READLINK3args { symlink: self.handle(ino)? };
        let told = self.ask(|| self.client.readlink(caller, &args))?;
        Ok((Answer::Data, told.data.0.into_owned()))
    }

    pub(crate) fn read(&self, caller: &Caller, ino: Ino, offset: u64, len: u32) -> Outcome {
        let file = self.handle(ino)?;
        let mut bytes = Vec::new();
        while (bytes.len() as u32) < len {
            let at = bytes.len();
            let count = (len - at as u32).min(self.limits.read_bytes);
            let args = READ3args { file: file.clone(), offset: offset + at as u64, count };
            let told = self.ask(|| self.client.read(caller, &args))?;
            // The count and the bytes are told apart: both must be what was asked for at most.
            if told.data.len() != told.count as usize || told.count > count {
                return Err(Errno::EIO);
            }
            if bytes.is_empty() {
                bytes = told.data.into_owned();
            } else {
                bytes.extend_from_slice(&told.data);
            }
            if told.eof {
                break;
            }
            // Neither bytes nor the end: this would go on for ever.
            if bytes.len() == at {
                return Err(Errno::EIO);
            }
        }
        Ok((Answer::Data, bytes))
    }

    pub(crate) fn write(
        &self,
        caller: &Caller,
        ino: Ino,
        offset: u64,
        append: bool,
        data: &Bytes,
    ) -> Result<Answer, Errno> {
        let file = self.handle(ino)?;
        let offset = if append { self.getattr(caller, &file)?.size } else { offset };
        let stable = if self.ways.sync { stable_how::FILE_SYNC } else { stable_how::UNSTABLE };
        self.write_at(caller, ino, &file, offset, data, stable)?;
        if locked(&self.unstable).is_full() {
            let files = locked(&self.unstable).files();
            for ino in files {
                match self.commit(&Caller::ROOT, ino) {
                    // A file that is gone has nothing to be kept.
                    Ok(()) | Err(Errno::ESTALE) => {}
                    Err(why) => return Err(why),
                }
            }
        }
        Ok(Answer::Wrote { len: data.len() as u64, offset })
    }

    /// Writes all of it, in pieces that the server takes.
    fn write_at(
        &self,
        caller: &Caller,
        ino: Ino,
        file: &nfs_fh3,
        offset: u64,
        data: &Bytes,
        stable: stable_how,
    ) -> Result<(), Errno> {
        let mut at = 0;
        while at < data.len() {
            let piece = data.slice(at..data.len().min(at + self.limits.write_bytes as usize));
            let args = WRITE3args {
                file: file.clone(),
                offset: offset + at as u64,
                count: piece.len() as u32,
                stable,
                data: Opaque::borrowed(&piece),
            };
            let told = self.ask(|| self.client.write(caller, &args))?;
            if told.count == 0 || told.count as usize > piece.len() {
                return Err(Errno::EIO);
            }
            if told.committed == stable_how::UNSTABLE {
                // It may do more than was asked for, never less.
                if stable != stable_how::UNSTABLE {
                    return Err(Errno::EIO);
                }
                let data = piece.slice(..told.count as usize);
                let written = Written { offset: offset + at as u64, data, verifier: told.verf };
                locked(&self.unstable).add(ino, written);
            }
            at += told.count as usize;
        }
        Ok(())
    }

    /// Everything that was written to this file survives a power cut when this returns.
    pub(crate) fn commit(&self, caller: &Caller, ino: Ino) -> Result<(), Errno> {
        for _ in 0..REWRITES_MAX {
            if !locked(&self.unstable).has(ino) {
                return Ok(());
            }
            let file = self.handle(ino)?;
            let taken = locked(&self.unstable).take(ino);
            let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
            let verifier = match self.ask(|| self.client.commit(caller, &args)) {
                Ok(told) => told.verf,
                Err(why) => {
                    // A file that is gone has nothing to be kept.
                    if why != Errno::ESTALE {
                        locked(&self.unstable).put_back(ino, taken);
                    }
                    return Err(why);
                }
            };
            for again in lost(&taken, verifier) {
                self.write_at(caller, ino, &file, again.offset, &again.data, stable_how::UNSTABLE)?;
            }
        }
        Err(Errno::EIO)
    }

    /// NFSv3 knows no holes: everything is data, and the hole is at the end.
    pub(crate) fn seek(
        &self,
        caller: &Caller,
        ino: Ino,
        offset: u64,
        whence: Whence,
    ) -> Result<Answer, Errno> {
        let size = self.getattr(caller, &self.handle(ino)?)?.size;
        match whence {
            _ if offset >= size => Err(Errno::ENXIO),
            Whence::Data => Ok(Answer::Offset { offset }),
            Whence::Hole => Ok(Answer::Offset { offset: size }),
        }
    }
}
