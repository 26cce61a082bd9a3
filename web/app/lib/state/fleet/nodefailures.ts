/** Why not everything is known that nodes were asked about. */
import type { NodeAnswers } from '../../api/schema.ts';
import { untold as t } from '../../text/states.ts';

/** What nodes say that could not answer, and who did not. */
export function untold({ answers, did_not_answer }: NodeAnswers): string[] {
  return [...failuresOf(answers), ...silentOf(did_not_answer)];
}

export function failuresOf(answers: NodeAnswers['answers']): string[] {
  return Object.entries(answers).flatMap(([node, told]) =>
    told.what === 'failed' ? [t.failed(node, told.why)] : [],
  );
}

export function silentOf(nodes: string[]): string[] {
  return nodes.length === 0 ? [] : [t.silent(nodes.join(', '))];
}
