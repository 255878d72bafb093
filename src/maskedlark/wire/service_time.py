"""The parameter service's time, signed with the nonce of whoever asks: an old answer does not verify."""

from typing import Annotated, Self

from pydantic import Field

from maskedlark.wire.message import Hex64, Message
from maskedlark.wire.signatures import SigningKey, VerifyingKey

LABEL = "maskedlark v2 service time"


class ServiceTime(Message):
    """What the parameter service answers. It signs the nonce and the time, in eight bytes."""

    time: Annotated[int, Field(ge=0, le=1 << 40)]
    signature: Hex64

    @classmethod
    def sign(cls, nonce: bytes, time: int, key: SigningKey) -> Self:
        """The time for whoever drew this nonce. Run by the parameter service."""
        return cls(time=time, signature=key.sign(LABEL, nonce + time.to_bytes(8, "big")).hex())

    def open(self, nonce: bytes, key: VerifyingKey) -> int:
        """The time, if the service signed it for this nonce."""
        key.verify(LABEL, nonce + self.time.to_bytes(8, "big"), bytes.fromhex(self.signature))
        return self.time
