//! What a frontend builds on, over a real volume of four islands in one process: promises of caching and their recall.

mod common;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use atoll_client::Watcher;
use atoll_core::Ino;
use atoll_posix::{Answer, Beside, Caching, Caller, Errno, Op};
use bytes::Bytes;
use common::{Tree, client};

/// Tells when it was recalled.
struct Recalled(mpsc::Sender<()>);

impl Watcher for Recalled {
    fn recall(&self) {
        let _ = self.0.send(());
    }

    fn knows(&self, _: Ino) -> bool {
        false
    }
}

#[test]
fn a_recall_waits_until_every_promise_is_passed_on_and_no_answer_after_it_brings_one() {
    let tree = Tree::new("promises");
    let (say_recalled, recalled) = mpsc::channel();
    tree.client.set_watcher(Arc::new(Recalled(say_recalled)));
    let (say_inside, inside) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let ask = |done| tree.client.submit(&Caller::ROOT, Op::GetAttr { ino: Ino::ROOT }, Bytes::new(), done);
    std::thread::scope(|scope| {
        let passing = move |_: Result<Answer, Errno>, beside: Beside<'_>| {
            say_inside.send(beside.caching).unwrap();
            may_go_on.recv().unwrap();
        };
        scope.spawn(move || ask(Box::new(passing)));
        assert_eq!(inside.recv().unwrap(), Caching::UntilRecalled);
        let second = scope.spawn(|| client(&tree.volume, 100, true));
        let early = recalled.recv_timeout(Duration::from_millis(300));
        go_on.send(()).unwrap();
        assert!(early.is_err(), "it was recalled while a promise was being passed on");
        recalled.recv_timeout(Duration::from_secs(20)).unwrap();
        let (send, receive) = mpsc::channel();
        ask(Box::new(move |_, beside| send.send(beside.caching).unwrap()));
        assert_eq!(receive.recv().unwrap(), Caching::Never);
        let mut kept = None;
        tree.client.keeping(&mut |caching| kept = Some(caching));
        assert_eq!(kept, Some(Caching::Never));
        second.join().unwrap().stop();
    });
}
