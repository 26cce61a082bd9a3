//! Encodes planned operations as the arguments of the script.

use tidegate::{
    internals::RemoteAdd,
    time::{Nanos, SECOND_NS},
};

use crate::store::script::{
    op::ScriptOp,
    plan::{Intent, KeyRequest, SlotRequest},
    record::{StoredRecord, parts},
};

/// The script that the store runs. It compares, adds and sets, and contains no algorithm.
pub(crate) const SCRIPT: &str = include_str!("script.lua");

/// The keys and arguments of one run of the script.
#[derive(Default, Debug)]
pub(crate) struct ScriptCall {
    pub(crate) keys: Vec<String>,
    /// The arguments, one for each operation.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// The record that a swap leaves if it is made, by index of the key, for further operations on the same key.
    left: Vec<Option<String>>,
}

impl ScriptCall {
    /// Adds a request. If its stored records already refuse it, all its keys are only looked at.
    pub(crate) fn add(&mut self, slot_request: &mut SlotRequest, now: Nanos) {
        let places: Vec<_> = slot_request.iter().map(|request| self.place(&request.key)).collect();
        let sent: Vec<_> =
            slot_request.iter().map(|request| request.sent().map_or(0, |key| self.place(key) + 1)).collect();
        for (request, &place) in slot_request.iter_mut().zip(&places) {
            if let Some(left) = &self.left[place] {
                request.found = Some(StoredRecord::read(left.clone(), &request.own.meter));
            }
        }
        let ops: Vec<_> = slot_request.iter_mut().map(|request| request.op(now)).collect();
        for (request, op) in slot_request.iter_mut().zip(&ops) {
            request.is_refused = op.is_err();
        }
        let is_refused = slot_request.iter().zip(&ops).any(|(request, op)| op.is_err() && !request.is_shadow);
        let last = slot_request.len().saturating_sub(1);
        for (order, (((request, op), place), sent)) in slot_request.iter().zip(ops).zip(places).zip(sent).enumerate() {
            let op = op.ok().filter(|_| !is_refused).unwrap_or(ScriptOp::Look);
            if let ScriptOp::Swap { after, .. } = &op {
                self.left[place] = Some(after.clone());
            }
            self.arguments.push(request.encode(op, now, (place + 1, sent), order == last));
        }
    }

    fn place(&mut self, key: &str) -> usize {
        self.keys.iter().position(|known| known == key).unwrap_or_else(|| {
            self.keys.push(key.to_owned());
            self.left.push(None);
            self.keys.len() - 1
        })
    }
}

impl KeyRequest {
    /// Encodes an operation on the key at index `place`; `sent` is the index of its second key, or 0. Indexes begin at
    /// 1.
    fn encode(&self, op: ScriptOp, now: Nanos, (place, sent): (usize, usize), is_last: bool) -> Vec<u8> {
        let mut packed = MsgPack::default();
        let (what, from, until) = match &op {
            ScriptOp::Look => ("look", 0, 0),
            ScriptOp::Clear => ("clear", 0, 0),
            ScriptOp::Swap { from, until, .. } => ("swap", *from, *until),
            ScriptOp::Add { addition, .. } => ("add", addition.from, addition.until),
            ScriptOp::Take { take, .. } => ("take", take.from, take.until),
            ScriptOp::Lend { addition, .. } => ("lend", addition.from, addition.until),
        };
        packed.flag(is_last).text(what).number(place as u64).flag(self.is_shadow);
        if matches!(op, ScriptOp::Look | ScriptOp::Clear) {
            return packed.0;
        }
        // A bucket state means nothing after the time in which all tokens come back, and that of a window after two
        // windows. What is used above the limit comes back later. Leases count for two epochs.
        let debt_ns = match &op {
            ScriptOp::Swap { after, .. } => StoredRecord::read(after.clone(), &self.own.meter).held,
            _ => None,
        }
        .map_or(0, |held| held.under.meter.reset_after_ns(held.word, now));
        // The record may have newer numbers, which another node wrote.
        let theirs = self.found.as_ref().and_then(|found| found.held).map_or(0, |held| held.under.meter.period_ns());
        let life_ns = self.own.meter.period_ns().max(theirs).saturating_mul(2).max(debt_ns);
        let leased_ns = life_ns.max(2 * self.lease_ns);
        // Microseconds: a store's clock is no finer, and a double holds them exactly.
        packed.number(from.div_ceil(1_000)).number(until / 1_000);
        packed.number(life_ns.div_ceil(SECOND_NS) + 1).number(leased_ns.div_ceil(SECOND_NS) + 1).number(sent as u64);
        packed.number(if let Intent::Delta { number, .. } = self.intent { number } else { 0 });
        match op {
            ScriptOp::Look | ScriptOp::Clear => {}
            ScriptOp::Swap { before, after, .. } => {
                packed.text(&after).text(&before);
            }
            ScriptOp::Add { head, leases, addition } => {
                self.encode_addition(&head, &addition, &mut packed).text(&leases);
            }
            ScriptOp::Take { head, take } => {
                let (seconds, rest) = parts(take.is_instant, take.add);
                packed.flag(take.is_instant).text(&head).less(seconds).less(rest);
                packed.number(u64::MAX).number(0).number(self.own.version);
            }
            ScriptOp::Lend { head, epoch, more, out_most, addition } => {
                let packed = self.encode_addition(&head, &addition, &mut packed).number(epoch);
                packed.signed(more[0]).signed(more[1]).number(out_most);
            }
        }
        packed.0
    }

    fn encode_addition<'p>(&self, head: &str, it: &RemoteAdd, packed: &'p mut MsgPack) -> &'p mut MsgPack {
        let ((add, add_ns), (most, most_ns)) = (parts(it.is_instant, it.add), parts(it.is_instant, it.most));
        packed.flag(it.is_instant).text(head);
        packed.number(add).number(add_ns).number(most).number(most_ns).number(self.own.version)
    }
}

/// Encodes an operation that writes `after` to the first key where it has `before`, to live for so many seconds.
pub(crate) fn swap(before: &str, after: &str, life_s: u64) -> Vec<u8> {
    let mut packed = MsgPack::default();
    packed.flag(true).text("swap").number(1).flag(false).number(0).number(u64::MAX);
    packed.number(life_s).number(life_s).number(0).number(0).text(after).text(before);
    packed.0
}

/// An encoder of values in `MessagePack` (<https://github.com/msgpack/msgpack/blob/master/spec.md>), each in its
/// longest form.
#[derive(Default)]
struct MsgPack(Vec<u8>);

impl MsgPack {
    fn flag(&mut self, flag: bool) -> &mut Self {
        self.0.push(0xc2 + u8::from(flag));
        self
    }

    /// Appends a number. The script has doubles, so a number above 2^53 is inexact.
    fn number(&mut self, number: u64) -> &mut Self {
        self.signed(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn less(&mut self, number: u64) -> &mut Self {
        self.signed(i64::try_from(number).map_or(i64::MIN, |number| -number))
    }

    fn signed(&mut self, number: i64) -> &mut Self {
        self.0.push(0xd3);
        self.0.extend(number.to_be_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        // A record has some hundred bytes.
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.0.push(0xdb);
        self.0.extend(length.to_be_bytes());
        self.0.extend(&text.as_bytes()[..length as usize]);
        self
    }
}
