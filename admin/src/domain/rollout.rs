//! Which version each node should have: the newest, or while that went to some nodes first, the one that all others keep.

use std::{collections::BTreeSet, iter, sync::Arc};

use crate::domain::{
    error::Problem,
    published::{Published, Shared},
    version::Rollout,
};

/// What each node should have.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    /// What edits are made on.
    pub(crate) newest: Shared,
    /// If it went to some nodes first.
    pub(crate) staged: Option<Staged>,
}

/// The newest version is on its way.
#[derive(Clone, Debug)]
pub(crate) struct Staged {
    pub(crate) rollout: Rollout,
    /// What all others keep.
    pub(crate) kept: Shared,
}

impl Targets {
    /// What a node of this name should have; `None`: an engine that is no node.
    pub(crate) fn of(&self, node: Option<&str>) -> &Shared {
        match &self.staged {
            Some(staged) if !staged.has(node) => &staged.kept,
            _ => &self.newest,
        }
    }

    /// Returns the versions that nodes should have: the newest, then the one that all others keep.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Shared> {
        iter::once(&self.newest).chain(self.staged.as_ref().map(|staged| &staged.kept))
    }

    /// Does it keep the version before the newest?
    pub(crate) fn keeps(&self, node: Option<&str>) -> bool {
        self.staged.as_ref().is_some_and(|staged| !staged.has(node))
    }

    pub(crate) fn rollout(&self) -> Option<&Rollout> {
        self.staged.as_ref().map(|staged| &staged.rollout)
    }
}

impl Staged {
    /// Returns the same rollout with these versions, which have one change more.
    pub(crate) fn with(&self, newest: &Published, kept: &Shared) -> Self {
        let (version, keeps) = (newest.version.version, kept.version.version);
        Self { rollout: Rollout { version, keeps, ..self.rollout.clone() }, kept: Arc::clone(kept) }
    }

    fn has(&self, node: Option<&str>) -> bool {
        node.is_some_and(|node| self.rollout.nodes.contains(node))
    }
}

/// Where a version goes.
#[derive(Clone, Debug)]
pub(crate) enum Goes {
    ToAll,
    /// To these first, by their names.
    To(Vec<String>),
    /// To all, instead of the one that some nodes have.
    Back,
}

impl Goes {
    /// Of a publish that names nodes, or none.
    pub(crate) fn to(nodes: Option<Vec<String>>) -> Self {
        nodes.map_or(Self::ToAll, Self::To)
    }

    pub(crate) fn nodes(&self) -> Option<BTreeSet<String>> {
        match self {
            Self::To(nodes) => Some(nodes.iter().cloned().collect()),
            Self::ToAll | Self::Back => None,
        }
    }
}

pub(crate) fn none_open() -> Problem {
    Problem::NotFound("No rollout is open: every node is to have the newest version.".to_owned())
}
