/** The server's words by the field of the body that they are about. */
import { Refused } from './request.ts';

export function faultsAt(error: unknown): Record<string, string> {
  const errors = error instanceof Refused ? (error.problem.errors ?? []) : [];
  return Object.fromEntries(errors.flatMap(({ pointer, message }) => (pointer ? [[pointer, message]] : [])));
}

export function hasStatus(error: unknown, status: number): boolean {
  return error instanceof Refused && error.problem.status === status;
}
