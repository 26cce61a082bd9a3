//! What people and tokens may: four roles, of which each may what the one before may, and the scope of nodes. Who may make
//! a call is a type, which stands in the signature of its handler.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The server itself, and commands on its machine, in versions and in the audit log. No user has this name.
pub(crate) const SERVER: &str = "tidegate";

/// Of a person or a token. Each may what those before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees everything but secrets, and tries policies.
    Viewer,
    /// Gives clients overrides and blocks of at most 24 hours.
    Operator,
    /// Changes the policy.
    Editor,
    /// Manages users, tokens and nodes, and takes the audit log out.
    Admin,
}

impl Role {
    /// From the least to the most.
    pub(crate) const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Editor, Self::Admin];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Editor => "editor",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        Self::ALL.into_iter().find(|role| role.name() == name).ok_or_else(|| UnknownRole(name.to_owned()))
    }
}

/// A role of the database that this build does not have.
#[derive(Debug)]
pub struct UnknownRole(String);

impl fmt::Display for UnknownRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no role `{}`; the roles are viewer, operator, editor and admin", self.0)
    }
}

impl std::error::Error for UnknownRole {}

/// What somebody may who has shown who he is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum May {
    Role(Role),
    /// What nodes of the fleet need, and nothing else.
    Node,
}

/// What nodes may is no role of people; it is called so in the database and in calls.
pub(crate) const NODE: &str = "node";

impl May {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Role(role) => role.name(),
            Self::Node => NODE,
        }
    }
}

impl FromStr for May {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        if name == NODE { Ok(Self::Node) } else { name.parse().map(Self::Role) }
    }
}

/// Who may make a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Everybody.
    Nothing,
    /// Everybody who shows who he is, nodes too.
    Known,
    /// This role, or one above it, of a person or a token.
    Role(Role),
    /// A person who is signed in.
    Person,
    /// A token of the scope `node`.
    Node,
}

impl Need {
    /// A word for it, in the document of the calls.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Known => "known",
            Self::Role(role) => role.name(),
            Self::Person => "person",
            Self::Node => NODE,
        }
    }

    /// A sentence for people.
    pub(crate) fn says(self) -> String {
        match self {
            Self::Nothing => "Open to everybody.".to_owned(),
            Self::Known => "Needs a session or a token.".to_owned(),
            Self::Role(role) => format!("Needs the role `{}`.", role.name()),
            Self::Person => "Needs a session; tokens cannot do this.".to_owned(),
            Self::Node => "Needs a token of the scope `node`.".to_owned(),
        }
    }
}

/// A type that stands for who may make a call.
pub(crate) trait Permission: 'static {
    const NEED: Need;
}

macro_rules! permissions {
    ($($(#[$about:meta])* $name:ident = $need:expr;)*) => {
        $(
            $(#[$about])*
            #[derive(Debug)]
            pub(crate) enum $name {}

            impl Permission for $name {
                const NEED: Need = $need;
            }
        )*

        /// All of them.
        pub(crate) const NEEDS: &[Need] = &[Need::Nothing, $($name::NEED),*];
    };
}

permissions! {
    /// Everybody who shows who he is.
    Known = Need::Known;
    /// A viewer, or more.
    Viewer = Need::Role(Role::Viewer);
    /// An operator, or more.
    Operator = Need::Role(Role::Operator);
    /// An editor, or an administrator.
    Editor = Need::Role(Role::Editor);
    /// An administrator.
    Admin = Need::Role(Role::Admin);
    /// A person, by his session.
    Person = Need::Person;
    /// A node of the fleet.
    Node = Need::Node;
}
