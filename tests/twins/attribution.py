"""Attribution as one would explain it: a list of ads, walked from the last to the first."""

from dataclasses import dataclass, field


@dataclass
class Ad:
    place: int
    click: bool
    destination: str
    seen: int
    ends: int
    purchase: int = 0
    visit: int = 0


@dataclass
class Reference:
    ads: list[Ad] = field(default_factory=list)

    def see(self, place: int, click: bool, destination: str, now: int, lives: int) -> None:
        self.ads.append(Ad(place, click, destination, now, now + lives))

    def convert(self, destination: str, now: int, purchase: int, visit: int) -> None:
        for wanted in (True, False):
            for ad in self.latest_first():
                if ad.click == wanted and ad.destination == destination and ad.seen <= now < ad.ends:
                    ad.purchase = min(50_000, ad.purchase + purchase)
                    ad.visit = min(1, ad.visit + visit)
                    return

    def close(self, places: set[int]) -> None:
        """These have been reported, so nothing more counts for them."""
        for ad in self.ads:
            if ad.place in places:
                ad.ends = 0

    def latest_first(self) -> list[Ad]:
        """By the time on the clock, which may have jumped back; of two at one moment, the one seen later."""
        return sorted(self.ads, key=lambda ad: (ad.seen, ad.place), reverse=True)

    def outcome(self) -> list[tuple[int, int, int]]:
        return sorted((ad.place, ad.purchase, ad.visit) for ad in self.ads)
