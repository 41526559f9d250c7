//! Work on several islands that is done side by side: it waits for disks most of the time. Knows nothing of what it is.

use std::sync::Mutex;

/// Islands that are worked on at once.
const AT_ONCE: usize = 8;

/// What comes of each, in their order.
pub(crate) fn abreast<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let items: Vec<(usize, I)> = items.into_iter().enumerate().collect();
    let (count, left) = (items.len(), Mutex::new(items.into_iter()));
    let take = || left.lock().expect("no panic while it is held").next();
    let run = || {
        let mut done = Vec::new();
        while let Some((at, item)) = take() {
            done.push((at, work(item)));
        }
        done
    };
    let mut done = std::thread::scope(|threads| {
        let others: Vec<_> = (1..AT_ONCE.min(count)).map(|_| threads.spawn(run)).collect();
        let mut done = run();
        for other in others {
            done.extend(other.join().expect("the work does not panic"));
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn several_are_worked_on_at_once_and_what_comes_of_them_is_in_their_order() {
        // Each of them waits until as many have begun.
        let barrier = Barrier::new(AT_ONCE);
        let twice = abreast(0..2 * AT_ONCE, |n| {
            barrier.wait();
            2 * n
        });
        assert_eq!(twice, (0..2 * AT_ONCE).map(|n| 2 * n).collect::<Vec<_>>());
        assert!(abreast(0..0, |n: usize| n).is_empty());
    }
}
