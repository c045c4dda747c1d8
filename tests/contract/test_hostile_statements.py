"""Whatever somebody with a login writes by hand is refused, by name, and the nearest lawful thing is taken.

A deed is a statement past almoner's own functions. What it is made of knows the ledger's driver alone.
"""

from collections.abc import Iterator

import pytest

from tests.conftest import Ledgers
from tests.contract.hostile import FORGERIES, HostileLogin, hostile_login

RULE, ROLE, CLOCK, CAP = "RuleViolated", "RoleDenied", "ClockWentBack", "CapExceeded"

# 1. The budget
BUDGET = {
    "an account that opens with something held": RULE,
    "an account that opens with something spent": RULE,
    "an account that opens with delta held": RULE,
    "an account that opens with delta spent": RULE,
    "an account that opens behind an entry": RULE,
    "an account that opens under another cap than its claim": RULE,
    "a block with a higher cap than its account": RULE,
    "a block with a higher delta than its account": RULE,
    "a block that the partition does not have": RULE,
    "a block beyond those of two cohorts": RULE,
    "what is held taken off an account": RULE,
    "what is held taken off behind an entry": RULE,
    "an account charged without an entry": RULE,
    "what is spent taken off an account": RULE,
    "delta taken off an account": RULE,
    "the cap of a block raised": RULE,
    "the delta of a block raised": RULE,
    "the cap of an account raised": RULE,
    "an account moved to another block": RULE,
    "an account given another number": RULE,
    "an account moved back to its first entry": RULE,
    "a cap set back after it was raised": RULE,
    "a hold on the account of another dataset": RULE,
    "a hold on the account that has the blocks": RULE,
    "a hold above the plan": RULE,
    "a hold below the plan": RULE,
    "a hold of more delta than planned": RULE,
    "a hold of a part that the plan does not have": RULE,
    "a hold of a part before the first": RULE,
    "another part for nothing by a run that goes on": RULE,
    "a part for nothing by a run that begins anew": RULE,
    "half of a part by a run that goes on": RULE,
    "a hold beyond the standing authorisation": RULE,
    "a hold of delta beyond the standing authorisation": RULE,
    "a hold beyond the cap": CAP,
    "a hold beyond the delta of the cap": CAP,
    "money armed after the approval has expired": RULE,
    "money armed after a rejection": RULE,
    "money armed by an attempt that has ended": RULE,
    "money armed after its approver is no steward": RULE,
    "money armed after the last day of its approver as a steward": RULE,
    "money armed after the authorisation has ended": RULE,
    "money armed after the last day of the authorisation": RULE,
    "money armed that nobody held": RULE,
    "money given back that nobody held": RULE,
    "money given back that was armed": "AlreadyRecorded",
    "money committed that was not armed": RULE,
    "money forfeited that was not armed": RULE,
    "money committed that was given back": RULE,
    "money armed by an analyst": ROLE,
    "money given back by a steward": ROLE,
    "money forfeited by somebody without a role": ROLE,
    "money moved long ago": CLOCK,
    "money armed without a charge in orders": RULE,
    "money armed again without a charge in orders": RULE,
    "a charge in orders by an analyst": ROLE,
    "a charge in orders long ago": CLOCK,
    "a charge in orders before the run": RULE,
    "a charge in orders of another attempt": RULE,
    "a charge in orders below the plan": RULE,
    "a charge in orders above the plan": RULE,
    "a charge in orders after nothing was armed": RULE,
    "a charge beyond the limit in orders": "LimitInOrdersExceeded",
}
# 1 and 2. Requests and runs
RUNS = {
    "a request for the data of another dataset": RULE,
    "a request by a steward": ROLE,
    "a request by somebody without a role": ROLE,
    "a request under a policy that nobody adopted": RULE,
    "a request without a plan": RULE,
    "a request whose plan has no mechanisms": RULE,
    "a request whose plan reads a negative block": RULE,
    "a request whose plan reads a block that is no number": RULE,
    "a request whose plan names no event": RULE,
    "a request whose plan costs a negative amount": RULE,
    "a request whose plan costs a part of a unit": RULE,
    "a request whose plan costs more than is counted": RULE,
    "a request that expires after the policy's days": RULE,
    "a plan added to a request": RULE,
    "a block added to a plan": RULE,
    "a mechanism added to a plan": RULE,
    "a part added to a plan": RULE,
    "a request submitted by somebody else": RULE,
    "a request of no block": RULE,
    "a request of a block without an account": RULE,
    "a request that no counter could hold": RULE,
    "a request withdrawn by its runner": RULE,
    "a request withdrawn long ago": CLOCK,
    "a request started before it is approved": RULE,
    "a request started out of turn": RULE,
    "a request started by a steward": ROLE,
    "a request started after it has expired": RULE,
    "a request started on erased data": RULE,
    "a run more than the policy allows": RULE,
    "a run that ends with a hold open": RULE,
    "a run that ends with a part armed and open": RULE,
    "a release that nobody produced": RULE,
    "a release produced by an analyst": ROLE,
    "a mechanism invoked by somebody without a role": ROLE,
    "a mechanism invoked by the requester": RULE,
    "a mechanism invoked by the approver": RULE,
    "a mechanism invoked for a request that waits": RULE,
    "a mechanism invoked by an attempt that has ended": RULE,
    "a mechanism of a seeded generator": RULE,
    "a mechanism with another event than planned": RULE,
    "a mechanism of another name than planned": RULE,
    "a mechanism that the plan does not have": RULE,
    "an artifact of a part that is not armed": RULE,
    "an artifact of a part that is not committed": RULE,
    "an artifact of an attempt that never was": RULE,
}
# 2 and 3. The gates
GATES = {
    "an approval of another digest": RULE,
    "an approval of another request's digest": RULE,
    "an approval of another release's digest": RULE,
    "an approval of spending while it runs": RULE,
    "an approval of a release that nobody produced": RULE,
    "an approval of a discarded release": RULE,
    "an approval of another proposal's digest": RULE,
    "an approval of an expired proposal": RULE,
    "an approval of a carried proposal": RULE,
    "an approval by somebody who is no steward": ROLE,
    "an approval by a steward whose role was revoked": ROLE,
    "an approval by a steward whose last day is over": ROLE,
    "an approval by an admin": RULE,
    "an approval by a steward who is an admin": RULE,
    "an approval by the requester": RULE,
    "an approval by the runner": RULE,
    "an approval of a proposal by its proposer": RULE,
    "a second approval by the same person": RULE,
    "a second approval of a proposal by the same person": RULE,
    "an approval that was taken back, again": RULE,
    "an approval that has expired": RULE,
    "an approval that expires after the policy's days": RULE,
    "an approval long ago": CLOCK,
    "an approval by another person's passkey": RULE,
    "an approval by a revoked passkey": RULE,
    "an approval taken back after it was used": RULE,
    "an approval taken back after the publication": RULE,
    "a rejection taken back": RULE,
    "an approval of a carried proposal taken back": RULE,
    "an approval taken back long ago": CLOCK,
    "an approval taken back by a revoked passkey": RULE,
    "a gate that opens without an approval": RULE,
    "a gate that opens after a rejection": RULE,
    "a gate that opens by an approval that was taken back": RULE,
    "a gate that opens after its approver is no steward": RULE,
    "a gate that closes though it is passed": RULE,
    "a gate that closes though the authorisation stands": RULE,
    "a rejection that nobody made": RULE,
    "a release discarded that nobody rejected": RULE,
    "a publication without an approval": RULE,
    "a publication after a rejection": RULE,
    "a publication after the approval has expired": RULE,
    "a publication after its approver is no steward": RULE,
    "a publication by an analyst": ROLE,
    "a publication long ago": CLOCK,
    "a release that is published without a publication": RULE,
    "a retraction that nobody approved": RULE,
}
# 11. Standing authorisations, schedules, and other proposals
AUTHORISATIONS = {
    "a proposal by a runner": ROLE,
    "a proposal by somebody without a role": ROLE,
    "a proposal under a policy that nobody adopted": RULE,
    "a retraction of another dataset's release": RULE,
    "a cap below nothing": RULE,
    "an authorisation of a negative amount": RULE,
    "a proposal carried without approvals": RULE,
    "a proposal carried after a rejection": RULE,
    "a proposal carried after its approvals have expired": RULE,
    "a proposal carried after its approver is no steward": RULE,
    "a proposal carried long ago": CLOCK,
    "a cap below what is held": CAP,
    "a proposal for a registration that was replaced": RULE,
    "a run beyond the number of an authorisation": RULE,
    "a run of an exhausted authorisation": RULE,
    "a run after the last day of an authorisation": RULE,
    "a run under an authorisation that was ended": RULE,
    "a schedule by a steward": ROLE,
    "a schedule paused by a runner": ROLE,
    "a schedule changed long ago": CLOCK,
    "a slot by a runner": ROLE,
    "a slot long ago": CLOCK,
    "a scheduled run given up by an analyst": ROLE,
    "a scheduled run given up long ago": CLOCK,
}
# 3 and 17. People and policies
PEOPLE = {
    "a role that she gives herself": ROLE,
    "a role given by a steward": ROLE,
    "a role given by a former admin": ROLE,
    "a role revoked by a steward": ROLE,
    "the role of the last admin revoked": RULE,
    "the role of the last lasting admin revoked": RULE,
    "the role of the last admin of today revoked": RULE,
    "a passkey for another person": ROLE,
    "another person's passkey revoked": ROLE,
    "a person whose name has a space before it": RULE,
    "a person whose name turns the line round": RULE,
    "a policy of no approval before spending": RULE,
    "a policy of no approval before publication": RULE,
    "a policy of no approval of proposals": RULE,
    "a policy of endless attempts": RULE,
    "a policy of approvals for two years": RULE,
    "a policy of requests that never expire": RULE,
    "a rule of no approval for a dataset": RULE,
    "a rule added to a policy in use": RULE,
    "a policy adopted by a steward": ROLE,
    "a policy adopted by a former admin": ROLE,
}
# 6. Data
DATA = {
    "a dataset by an analyst": ROLE,
    "a dataset that calls shared people public": RULE,
    "a dataset that does not name shared people": RULE,
    "a dataset that names shared people by another field": RULE,
    "a dataset registered again that has data": RULE,
    "a dataset whose name is a path": "InvalidPlainName",
    "a dataset whose name is in other letters": "InvalidPlainName",
    "a version taken in by an analyst": ROLE,
    "data taken in under a registration that was replaced": RULE,
    "data taken in out of turn": RULE,
    "a dataset registered out of turn": RULE,
    "a dataset without blocks": RULE,
    "a schedule changed out of turn": RULE,
    "people without names taken in again": RULE,
    "another key for people in two datasets": RULE,
    "a person in two datasets": RULE,
    "a person moved to another cohort": RULE,
    "a new person in a cohort that is closed": RULE,
    "a person added to people who were counted": RULE,
    "a cohort by a runner": ROLE,
    "a cohort out of turn": RULE,
    "a cohort of public data": RULE,
    "a cohort beside people without names": RULE,
    "an erasure by an analyst": ROLE,
    "an erasure long ago": CLOCK,
    "an erasure that leaves no digest": RULE,
    "an erasure of other data than it says": RULE,
    "data added to an erasure that has ended": RULE,
    "an erasure ended by a runner": ROLE,
    "an erasure ended long ago": CLOCK,
}
# 15. Looks at unprotected figures, and other figures
LOOKS = {
    "a look at another account": RULE,
    "a look while a release waits": RULE,
    "a look long ago": CLOCK,
    "a leak recorded by a runner": ROLE,
    "a leak recorded long ago": CLOCK,
    "unprotected figures that nobody is recorded to see": RULE,
    "unprotected figures that somebody else has seen": RULE,
    "unprotected figures before the decision": RULE,
    "unprotected figures by an analyst": ROLE,
    "public figures added after the run": RULE,
    "public figures twice": RULE,
    "charged figures that another run has paid": RULE,
    "charged figures that nobody has paid": RULE,
    "two charged figures paid once": RULE,
    "an attack recorded by a steward": ROLE,
    "an attack recorded long ago": CLOCK,
}
# 8 and 14. The record
RECORD = {
    "an entry that does not follow": RULE,
    "an entry with a later number": RULE,
    "an entry long ago": CLOCK,
    "a newest entry that is not there": RULE,
    "an older newest entry": RULE,
    "a newest entry with another hash": RULE,
    "a second newest entry": RULE,
    "a checkpoint by an analyst": ROLE,
    "a checkpoint of nobody": ROLE,
    "a checkpoint of another hash": RULE,
    "a checkpoint ahead of the record": RULE,
    "a checkpoint before the record": RULE,
    "a checkpoint long ago": CLOCK,
    "a restoration by a runner": ROLE,
}

# What has no conditions but its form
UNCONDITIONAL = ("a rehearsal", "a delivery", "people who were counted")

DEEDS = BUDGET | RUNS | GATES | AUTHORISATIONS | PEOPLE | DATA | LOOKS | RECORD


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def login(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[HostileLogin]:
    with hostile_login(ledgers, request.param) as made:
        yield made


def test_the_driver_tries_them_all(login: HostileLogin) -> None:
    assert login.deeds() == DEEDS.keys()


@pytest.mark.parametrize("deed", DEEDS)
def test_a_deed_is_refused_and_its_neighbour_is_not(login: HostileLogin, deed: str) -> None:
    assert (login.refusal(deed), login.refusal_of_neighbour(deed)) == (DEEDS[deed], None)


@pytest.mark.parametrize("fact", UNCONDITIONAL)
def test_a_fact_without_conditions_is_taken(login: HostileLogin, fact: str) -> None:
    assert login.refusal_of_fact(fact) is None


@pytest.mark.parametrize("forgery", FORGERIES)
def test_no_fact_is_forged(login: HostileLogin, forgery: str) -> None:
    assert login.taken(forgery) == []
