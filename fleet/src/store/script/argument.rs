//! Decodes the arguments of the script, as the script does: for its model in Rust.

use tidegate::{
    internals::RemoteAdd,
    time::{Nanos, SECOND_NS},
};

use crate::store::script::op::ScriptOp;

/// An operation as the script reads it from an argument.
#[derive(Debug)]
pub(super) struct ScriptArgument {
    pub(super) is_last: bool,
    pub(super) op: ScriptOp,
    /// The index of its key, from 1.
    pub(super) key: usize,
    pub(super) is_shadow: bool,
    /// The version of the policy by which an addition is charged.
    pub(super) version: u64,
    /// The seconds that the value lives: without leases, and with leases.
    pub(super) lives: [u64; 2],
    /// The index of the key of the last number that the node sent (0: none), and the number of this charge.
    pub(super) sent: usize,
    pub(super) number: u64,
}

impl ScriptArgument {
    /// Decodes an argument.
    pub(super) fn read(argument: &[u8]) -> Self {
        let mut values = ArgumentDecoder(argument);
        let (is_last, what) = (values.flag(), values.text());
        let (key, is_shadow) = (values.place(), values.flag());
        let mut charge =
            Self { is_last, op: ScriptOp::Look, key, is_shadow, version: 0, lives: [1; 2], sent: 0, number: 0 };
        match what {
            "look" => return charge,
            "clear" => {
                charge.op = ScriptOp::Clear;
                return charge;
            }
            _ => {}
        }
        let (from, until) = (values.number().saturating_mul(1_000), values.number().saturating_mul(1_000));
        charge.lives = [values.number(), values.number()];
        (charge.sent, charge.number) = (values.place(), values.number());
        if what == "swap" {
            let (after, before) = (values.text().to_owned(), values.text().to_owned());
            charge.op = ScriptOp::Swap { before, after, from, until };
            return charge;
        }
        let (is_instant, head) = (values.flag(), values.text().to_owned());
        let mut tail = || {
            let (first, second) = (values.signed().unsigned_abs(), values.signed().unsigned_abs());
            if is_instant { first.saturating_mul(SECOND_NS).saturating_add(second) } else { first }
        };
        let (add, most) = (tail(), tail());
        charge.version = values.number();
        let word_head = head.split_once(';').map(|(_, word)| u64::from_str_radix(word, 16));
        let word_head = word_head.expect("numbers and a word").expect("a word");
        let addition = RemoteAdd { head: word_head, is_instant, add, most, from, until };
        charge.op = match what {
            "add" => ScriptOp::Add { head, leases: values.text().to_owned(), addition },
            "take" => ScriptOp::Take { head, take: addition },
            "lend" => {
                let (epoch, more) = (values.number(), [values.signed(), values.signed()]);
                ScriptOp::Lend { head, epoch, more, out_most: values.number(), addition }
            }
            _ => unreachable!("{what}"),
        };
        charge
    }

    /// Returns how many seconds the value lives once it is charged.
    pub(super) fn life_s(&self, after: &str, now: Nanos) -> u64 {
        let (_, rest) = after.split_once('|').unwrap_or_default();
        let life = self.lives[usize::from(rest.starts_with(|sign: char| sign.is_ascii_digit()))];
        match &self.op {
            ScriptOp::Add { addition, .. }
            | ScriptOp::Take { take: addition, .. }
            | ScriptOp::Lend { addition, .. }
                if addition.is_instant =>
            {
                let seconds = rest.split('|').nth(1).and_then(|seconds| seconds.parse::<u64>().ok());
                life.max((seconds.expect("seconds") + 2).saturating_sub(now / SECOND_NS))
            }
            _ => life,
        }
    }
}

/// A decoder of what `MsgPack` encodes.
struct ArgumentDecoder<'a>(&'a [u8]);

impl<'a> ArgumentDecoder<'a> {
    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    fn flag(&mut self) -> bool {
        match self.bytes(1) {
            [0xc2] => false,
            [0xc3] => true,
            other => unreachable!("a flag: {other:?}"),
        }
    }

    fn signed(&mut self) -> i64 {
        assert_eq!(self.bytes(1), [0xd3], "a number");
        i64::from_be_bytes(self.bytes(8).try_into().expect("eight bytes"))
    }

    fn number(&mut self) -> u64 {
        self.signed().try_into().expect("it is not negative")
    }

    fn place(&mut self) -> usize {
        usize::try_from(self.number()).expect("a place")
    }

    fn text(&mut self) -> &'a str {
        assert_eq!(self.bytes(1), [0xdb], "a text");
        let length = u32::from_be_bytes(self.bytes(4).try_into().expect("four bytes"));
        str::from_utf8(self.bytes(length as usize)).expect("UTF-8")
    }
}

/// Decodes the arguments of a script so that they can be printed.
#[cfg(test)]
pub(crate) fn read(arguments: &[&[u8]]) -> impl std::fmt::Debug {
    arguments.iter().map(|argument| ScriptArgument::read(argument).op).collect::<Vec<_>>()
}
