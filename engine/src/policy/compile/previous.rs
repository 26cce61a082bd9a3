//! The unchanged clients of the previous snapshot, which a delta leaves out and the next snapshot shares.

use crate::policy::{
    compiled::{
        CompiledClient, CompiledDomain, CompiledLimit, CompiledOverride, DomainKind, Grants, Limits, NumberedTier,
    },
    error::ProblemCollector,
    matcher::Matcher,
};

/// A domain of the previous snapshot.
pub(super) struct PreviousDomain<'p> {
    pub(super) limits: &'p [CompiledLimit],
    pub(super) domain: &'p CompiledDomain,
    /// The kinds and values of its clients that changed or were removed.
    pub(super) gone: Vec<(&'p str, &'p str)>,
}

impl PreviousDomain<'_> {
    /// Returns the kinds without the clients that changed or were removed.
    pub(super) fn kinds(&self, report: &mut ProblemCollector<'_>) -> Vec<DomainKind> {
        let copy = |kind: &DomainKind| DomainKind {
            name: kind.name.clone(),
            hash: kind.hash,
            default_tier: None,
            clients: kind.clients.copy_to_change(&kind.name),
            exceptions: kind.exceptions.clone(),
            members: kind.members.clone(),
        };
        let mut kinds: Vec<DomainKind> = self.domain.kinds.iter().map(copy).collect();
        for &(name, value) in &self.gone {
            let kind = kinds.iter_mut().find(|kind| *kind.name == *name);
            let is_gone = kind.is_some_and(|kind| {
                let client = Matcher::parse(name, value).ok().and_then(|matcher| kind.clients.remove(matcher));
                client.inspect(|client| kind.remove_client(*client)).is_some()
            });
            if !is_gone {
                report.wrong(format!("{name} `{value}` was no client before"));
            }
        }
        kinds
    }

    /// Checks that the time zone did not change under clients with limits of calendar periods, which were compiled for it.
    pub(super) fn check_timezone(
        &self,
        report: &mut ProblemCollector<'_>,
        kinds: &[DomainKind],
        timezone: Option<&str>,
    ) {
        let is_of_calendar = |exception: &CompiledOverride| match &exception.grants {
            Grants::Limits(own) => {
                self.limits[own.start as usize..own.end as usize].iter().any(CompiledLimit::is_of_calendar)
            }
            Grants::Unlimited | Grants::Blocked(_) => false,
        };
        if self.domain.timezone.as_deref() != timezone
            && kinds.iter().any(|kind| kind.exceptions.iter().flatten().any(is_of_calendar))
        {
            report.field("timezone").wrong("it is not what limits of clients were compiled for");
        }
    }

    /// Returns the numbered tiers with their present indices.
    pub(super) fn renumber_tiers(
        &self,
        report: &mut ProblemCollector<'_>,
        kinds: &[DomainKind],
        tiers: &[(Box<str>, Limits)],
    ) -> Vec<NumberedTier> {
        let renumber = |(number, tier): (usize, &NumberedTier)| {
            let place = tiers.iter().position(|(id, _)| *id == tier.id).map(|place| place as u32);
            let is_used = |kind: &DomainKind| {
                let mut exceptions = kind.exceptions.iter().flatten();
                kind.members.get(number).is_some_and(|members| *members > 0)
                    || exceptions.any(|exception| exception.tier == Some(number as u32))
            };
            if place.is_none() && kinds.iter().any(is_used) {
                report.field("tiers").wrong(format!("`{}` is gone, of which clients are that stay", tier.id));
            }
            NumberedTier { id: tier.id.clone(), place }
        };
        self.domain.numbered.iter().enumerate().map(renumber).collect()
    }

    /// Appends the limits of unchanged clients to the limits of the new snapshot.
    pub(super) fn copy_limits(&self, kinds: &mut [DomainKind], limits: &mut Vec<CompiledLimit>) {
        for exception in kinds.iter_mut().flat_map(|kind| kind.exceptions.iter_mut().flatten()) {
            let first = limits.len() as u32;
            match &mut exception.grants {
                Grants::Unlimited => {}
                Grants::Blocked(limit) => {
                    limits.push(self.limits[*limit as usize].clone());
                    *limit = first;
                }
                Grants::Limits(own) => {
                    limits.extend_from_slice(&self.limits[own.start as usize..own.end as usize]);
                    *own = first..limits.len() as u32;
                }
            }
        }
    }
}

impl DomainKind {
    /// Adds a client, with its override in one of the `free` slots, and returns its compiled form.
    pub(super) fn add_client(
        &mut self,
        tier: Option<u32>,
        exception: Option<CompiledOverride>,
        free: &mut Vec<u32>,
    ) -> CompiledClient {
        let Some(exception) = exception else {
            // A client with neither is invalid: the compilation has failed.
            let tier = tier.unwrap_or(u32::MAX);
            if let Some(members) = self.members.get_mut(tier as usize) {
                *members += 1;
            }
            return CompiledClient::OfTier(tier);
        };
        let place = free.pop().unwrap_or(self.exceptions.len() as u32);
        match self.exceptions.get_mut(place as usize) {
            Some(free) => *free = Some(exception),
            None => self.exceptions.push(Some(exception)),
        }
        CompiledClient::Excepted(place)
    }

    /// Removes a client that was added.
    fn remove_client(&mut self, client: CompiledClient) {
        match client {
            CompiledClient::Excepted(place) => self.exceptions[place as usize] = None,
            CompiledClient::OfTier(tier) => self.members[tier as usize] -= 1,
        }
    }
}
