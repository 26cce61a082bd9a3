/** What an authenticator app shows. */
import { createHmac } from 'node:crypto';

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** The code so many steps of 30 seconds from now, by the secret as it is typed (RFC 6238). */
export function totp(secret: string, steps = 0): string {
  const bits = [...secret].map((letter) => LETTERS.indexOf(letter).toString(2).padStart(5, '0')).join('');
  const key = Buffer.from((bits.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2)));
  const step = Buffer.alloc(8);
  step.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + steps));
  const tag = createHmac('sha1', key).update(step).digest();
  const word = tag.readUInt32BE((tag.at(-1) ?? 0) & 15) & 0x7fff_ffff;
  return String(word % 1_000_000).padStart(6, '0');
}
