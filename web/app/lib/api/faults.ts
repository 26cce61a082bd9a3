/** The server's words by the field of the body that they are about. */
import { RefusedError } from './request.ts';

export function faultsAt(error: unknown): Record<string, string> {
  const errors = error instanceof RefusedError ? (error.problem.errors ?? []) : [];
  return Object.fromEntries(errors.flatMap(({ pointer, message }) => (pointer ? [[pointer, message]] : [])));
}

export function hasStatus(error: unknown, status: number): boolean {
  return error instanceof RefusedError && error.problem.status === status;
}
